// Tells the scheduler of a shard's files, through a hook, until it has heard.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::producer {

// What the scheduler is told (FileNotice of cell.proto).
struct FileEvent {
  stream::FileId file;
  std::optional<stream::Seal> seal;  // set: the file is closed
};

// Tells the scheduler, `done` whether it heard. Called many times.
using NotifyHook = Callback<void(const FileEvent&, Callback<void(Status)> done)>;

// Tells the scheduler of files, again and again until it has heard (NotifyRetryWait). Threads: the
// loop's.
class Notifier {
 public:
  // `hook` may be empty: nobody is told. `on_idle` runs when the last notice was heard or given up,
  // never inside of Notify.
  Notifier(EventLoop& loop, NotifyHook hook, Callback<void()> on_idle)
      : loop_(loop), hook_(std::move(hook)), on_idle_(std::move(on_idle)) {}

  void Notify(FileEvent event);
  // Nothing is left to tell.
  bool idle() const { return notices_.empty(); }
  // Whom it does not reach from now on is not told again.
  void Stop() { stopped_ = true; }
  int64_t failures() const { return failures_; }

 private:
  struct Notice {
    Notice(EventLoop& loop, FileEvent e) : event(std::move(e)), retry(loop) {}
    FileEvent event;
    int failures = 0;
    Timer retry;
    Scope scope;  // of the try under way
  };
  using Place = std::list<Notice>::iterator;
  void Tell(Place notice);
  void OnTold(Place notice, const Status& status);

  EventLoop& loop_;
  NotifyHook hook_;
  Callback<void()> on_idle_;
  std::list<Notice> notices_;  // not heard yet
  int64_t failures_ = 0;
  bool stopped_ = false;
};

}  // namespace tailcast::producer
