// Who waits for the next view of the cell (GetView's long polls), and in which order it reaches
// them. A cell has a few writers and caches, and up to tens of thousands of readers, whose machines
// would all be busy with a new view in the same milliseconds:
//
//   writers   at once: caches that know a newer ring refuse what they write under the older one
//   caches    at once; but a ring that is read from now on, last: who reads by the older one is
//             refused by caches that know it
//   readers   some at a time, so that all have it `spread` later
//
//   t after the change      0     10    20    ...   240   250 ms
//   most views              W C R   R     R           R
//   a ring's phase kNew     W   R   R     R           R     C
//
// A change in between goes the same way; who is left from the one before gets both at once. Nobody
// waits longer than `spread` for the first of them. Any order is right (cache/README), and this one
// holds for those who wait: who asks while others are being told is answered at once.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::scheduler {

class ViewWaiters {
 public:
  struct Options {
    int waiting_max = 20000;
    Duration spread = Duration::Millis(250);
  };
  // `view`: asked for whenever somebody is answered; null: it can't be shown yet.
  ViewWaiters(EventLoop& loop, Options options, std::function<const v1::CellView*()> view);

  // Answers when there is another view than the one that the request knows, or after `wait`.
  // ResourceExhausted: too many wait. Unavailable: there was none to show until then.
  void Wait(const v1::GetViewRequest& request, Duration wait, rpc::Responder respond);
  // There is another one. `caches_last`: as above.
  void OnChange(bool caches_last);
  // Answers all of them with this error.
  void End(const Status& why);

  static constexpr Duration kStep = Duration::Millis(10);

 private:
  struct Waiter {
    explicit Waiter(EventLoop& loop) : timer(loop) {}
    uint64_t known_version = 0;
    v1::ViewUse use = v1::VIEW_WRITES;
    rpc::Responder respond;
    Timer timer;
  };
  // Of those of this use that are behind, `most` at most; whether any is left.
  bool Answer(v1::ViewUse use, int64_t most);
  void Step();

  EventLoop& loop_;
  const Options options_;
  const std::function<const v1::CellView*()> view_;
  std::map<uint64_t, Waiter> waiters_;  // by number, in the order of the calls
  uint64_t next_ = 1;
  // Of the changes that not everybody has: since when, how many readers get it at a time.
  std::optional<MonotonicTime> since_;
  int64_t at_a_time_ = 0;
  bool caches_last_ = false;
  Timer step_{loop_};
  Scope scope_;
};

}  // namespace tailcast::scheduler
