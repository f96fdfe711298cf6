// The upstream end of a hop (paper §2.4 Readers): runs the operations that its scheduler gives it,
// each with a stream to a writer of the next cell.
//
// One poller reads the lengths of all operations' files in bulk from the metadata cache (50 ms, or
// doorbells); the primary layer's own sizes are asked once a second, as a fallback. Deltas are read
// by stream/range_reader.h, cache first; what to read and to send is decided in copy_core.h.
//
// The agent keeps copying while its scheduler is away; it reports states, not decisions: an
// operation that ends is the scheduler's to start again.
//
// Threads: everything on the loop of the ports. Bounded: reads outstanding, bytes queued on a
// stream, operations, ended operations that wait to be reported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/reader/copy_core.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/operation.h"
#include "tailcast/stream/ports.h"

namespace tailcast::reader {

struct ReaderOptions {
  std::string name;  // of this process, unique in the cell
  std::string cell;
  uint64_t incarnation = 1;  // random, not 0: differs after a restart
  Duration poll_interval = Duration::Millis(50);
  bool doorbells = false;  // low-latency profile: lengths are watched; polls become a fallback
  Duration doorbell_timeout = Duration::Seconds(2);
  Duration primary_poll_interval = Duration::Seconds(1);
  Duration cache_timeout = Duration::Millis(250);
  CopyOptions copy;
  int64_t queued_bytes_max = 1 << 20;  // of one stream
  int operations_max = 4000;
  int ended_max = 10000;  // ended operations that wait to be reported
  // A writer that owes an answer and is silent for so long is lost. Longer than the link's round
  // trip and the slowest flush.
  Duration stall_timeout = Duration::Seconds(3);
  Duration list_wait_max = Duration::Seconds(5);
};

class ReaderAgent {
 public:
  // All outlive the agent.
  ReaderAgent(const stream::CellPorts& ports, rpc::Connector& connector, MetricRegistry& metrics,
              ReaderOptions options);
  ~ReaderAgent();
  ReaderAgent(const ReaderAgent&) = delete;
  ReaderAgent& operator=(const ReaderAgent&) = delete;

  // Serves tailcast.v1.Reader on `server`. Before the server starts.
  void Attach(rpc::Server& server);

  int operations() const { return static_cast<int>(running_); }

 private:
  friend class ReaderOperation;
  struct Counters {
    explicit Counters(MetricRegistry& metrics);
    Counter& started;
    Counter& done;
    Counter& writer_lost;
    Counter& superseded;
    Counter& source_errors;
    Counter& refused;
    Counter& data_loss;
    Counter& stopped;
    Counter& polls;
    Counter& poll_errors;
    Counter& primary_polls;
    Counter& notifications;
    Counter& unwatched;
    Counter& stalls;
    Counter& jumps;
    Counter& short_reads;
    Counter& sent_bytes;
    Counter& cache_bytes;
    Counter& primary_bytes;
    Counter& rejected_input;
    Gauge& running;
  };
  // The metadata value that some operations' files share.
  struct Group {
    std::set<uint64_t> operations;  // by local number
    uint64_t watch = 0;             // outstanding doorbell
    bool dirty = true;              // to be read in the next poll
    bool watchable = true;
  };
  struct WaitingList {
    uint64_t known_version = 0;
    rpc::Responder respond;
    TimerId timer = 0;
  };

  void OnStart(const std::string& request, rpc::Responder respond);
  void OnStop(const std::string& request, rpc::Responder respond);
  void OnList(const std::string& request, rpc::Responder respond);
  Status CheckScheduler(uint64_t incarnation);
  void StartOne(stream::Operation operation);
  void AnswerList();
  std::shared_ptr<rpc::Client> ClientFor(const std::string& address, const std::string& via);

  void AddToGroup(uint64_t number, cache::Key key);
  void RemoveFromGroup(uint64_t number, cache::Key key);
  void ArmPoll();
  void Poll(bool all);
  void OnPolled(const std::vector<cache::Key>& keys,
                const Result<std::vector<std::optional<std::string>>>& values);
  void Watch(cache::Key key);
  void Tick();
  // An operation's report changed; `now`: its state, so that the scheduler is told at once.
  void Changed(uint64_t number, bool now);

  stream::CellPorts ports_;
  rpc::Connector& connector_;
  const ReaderOptions options_;
  Counters counters_;
  uint64_t next_number_ = 1;
  // Running and ended ones, by local number.
  std::map<uint64_t, std::shared_ptr<class ReaderOperation>> operations_;
  std::map<stream::OperationTarget, uint64_t> by_target_;  // running
  int64_t running_ = 0;
  std::map<cache::Key, Group> groups_;
  std::map<std::pair<std::string, std::string>, std::weak_ptr<rpc::Client>> clients_;
  uint64_t scheduler_incarnation_ = 0;
  uint64_t version_ = 1;
  std::unique_ptr<WaitingList> waiting_;
  TimerId poll_timer_ = 0;
  bool polling_ = false;
  bool doorbell_posted_ = false;
  MonotonicTime last_full_poll_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tailcast::reader
