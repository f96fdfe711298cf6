// Beats: whether another process runs, told by itself over a stream. The one end sends a
// message every 100 ms for as long as its loop turns, or 1 s while nothing depends on it; the
// other judges its silence by silence_core.h. One stream for a pair of processes, whatever they
// have to do with each other.
//
//   watcher ──Beats──────────► server
//           ◄─ · ─ · ─ · ────            on_heard with the first
//           ◄             stopped        on_silent, after 200 ms on a quiet machine
//           ◄─ · ─ · ────                on_heard
//           ✕ connection                 on_silent at once; the watcher connects again
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tailcast/base/running_clock.h"
#include "tailcast/base/scope.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/rpc/silence_core.h"

namespace tailcast::rpc {

// The one that is watched.
class BeatServer {
 public:
  // `loop` outlives it.
  explicit BeatServer(EventLoop& loop) : loop_(loop) {}
  BeatServer(const BeatServer&) = delete;
  BeatServer& operator=(const BeatServer&) = delete;

  // Serves a method of a service, "/tailcast.v1.Reader/Beats". Before the server starts, once.
  void Attach(Server& server, std::string_view method);
  // Whether nothing depends on this process now, so that its silence may be noticed later. Watchers
  // hear at once when something does again.
  void SetIdle(bool idle);

 private:
  static constexpr size_t kWatchersMax = 10000;
  struct Watcher {
    std::unique_ptr<Stream> stream;
    Scope callbacks;
    Scope& scope() { return callbacks; }
  };
  void OnStream(std::unique_ptr<Stream> stream);
  void Beat();

  EventLoop& loop_;
  std::map<uint64_t, std::unique_ptr<Watcher>> watchers_;
  uint64_t next_ = 1;
  bool idle_ = false;
  Timer timer_{loop_};
  Scope scope_;
};

struct BeatWatchOptions {
  SilenceOptions silence;
  Duration first_beat = Duration::Seconds(3);  // connecting included
  Duration retry = Duration::Millis(100);      // after a broken connection; doubles
  Duration retry_max = Duration::Seconds(2);
  // A connection on which nothing came for so long is given up for a new one: its other end may
  // have forgotten it, or never have heard of it.
  Duration give_up = Duration::Seconds(5);
};

// The one that watches.
class BeatWatch {
 public:
  struct Hooks {
    UniqueFunction<void()> on_heard;                    // it runs, for all that is known
    UniqueFunction<void(const Status& why)> on_silent;  // Unavailable; it was not before
  };

  // `loop` and `client` outlive it. Begins at once. Hooks are called on later turns.
  BeatWatch(EventLoop& loop, Client& client, std::string method, BeatWatchOptions options,
            Hooks hooks);
  BeatWatch(const BeatWatch&) = delete;
  BeatWatch& operator=(const BeatWatch&) = delete;

  bool silent() const { return silent_; }
  // There is no connection now; the next one is tried after a while.
  bool broken() const { return retry_timer_.armed(); }
  // If it is broken: tries at once, because somebody else says that it is there.
  void ConnectNow();

 private:
  void Connect();
  void OnBeat(bool idle);
  void OnClosed(const Status& why);
  void Tick();
  void Judge();
  void Silent(const std::string& why);

  EventLoop& loop_;
  Client& client_;
  const std::string method_;
  const BeatWatchOptions options_;
  Hooks hooks_;
  RunningClock clock_;
  SilenceCore silence_;
  std::unique_ptr<Stream> stream_;
  MonotonicTime connected_at_;  // by clock_
  MonotonicTime heard_at_;      // last on this stream, or its beginning
  bool heard_ = false;          // on this stream
  bool silent_ = false;
  int failures_ = 0;  // in a row
  Timer tick_timer_{loop_};
  Timer retry_timer_{loop_};
  Scope connection_;  // of the stream's callbacks
  Scope scope_;
};

}  // namespace tailcast::rpc
