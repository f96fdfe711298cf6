// What a producer does about a primary layer that fails: how long it waits before it tries again,
// and when it stops trying.
//
//   append fails ──▶ trouble begins ──▶ open fails ──▶ wait 50 ms ──▶ open fails ──▶ wait 100 ms
//                    │                  or the next append                         ... 2 s, 2 s ...
//                    └─────────── give_up (60 s) without a message made durable ──────────▶ stop
//   a message is durable, or a file ──▶ all is well again: the next trouble begins anew
//   is open and none waits for it
//
// A file that opened is not enough: where files can be created but not appended to (a full disk, a
// quota), each would cost a number and two names as fast as the system goes.
//
// A layer that does not answer (DeadlineExceeded: a mount or cluster that hangs) is waited for, as
// long as it takes: it goes on by itself when it does, and until then callers hear of it by
// back-pressure. `give_up` counts from the last time that it did not answer.
//
// An error that no waiting mends (no permission, a folder that contradicts itself) stops it at
// once.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::producer {

struct RetryOptions {
  Duration wait_min = Duration::Millis(50);
  Duration wait_max = Duration::Seconds(2);  // each wait is twice the one before, up to this
  Duration give_up = Duration::Seconds(60);
};

class RetryCore {
 public:
  // `name`: of the shard, for the errors.
  RetryCore(std::string name, RetryOptions options) : name_(std::move(name)), options_(options) {}

  struct Verdict {
    Duration wait;               // then again
    std::optional<Status> stop;  // set: not again
  };
  // An append failed, or its outcome is unknown: its file is given up. The first one of a trouble
  // need not wait.
  //   stop: Unavailable       failing, and answering, since `give_up`
  Verdict OnAppendFailed(MonotonicTime now);

  // A step of opening a file failed with `error`.
  //   stop: Unavailable       failing, and answering, since `give_up`
  //         any other         `error`, which no waiting mends
  Verdict OnOpenFailed(const Status& error, MonotonicTime now);

  void OnWell();

  // Of an append that failed; before OnAppendFailed.
  void OnCause(const Status& error);
  // Why the primary layer fails, as it said last; Ok while all is well.
  const Status& trouble() const { return trouble_; }

 private:
  // Failing since then and now, too.
  Verdict Again(MonotonicTime now);

  const std::string name_;
  const RetryOptions options_;
  MonotonicTime failing_since_ = MonotonicTime::Max();  // Max: all is well
  Duration wait_;                                       // the one before; 0 while all is well
  Status cause_;                                        // of the last failure
  Status trouble_;                                      // the same, with the shard's name
};

// How long after the `failures`-th time that the scheduler could not be told of a file it is told
// again; nullopt: no more, because a scheduler that was away rebuilds its state from listings.
std::optional<Duration> NotifyRetryWait(int failures);

}  // namespace tailcast::producer
