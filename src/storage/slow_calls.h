// Carries out what SlowRequestsCore says: timers, log lines, calls that are given up.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/slow_requests_core.h"

namespace tailcast::storage {

class SlowCalls {
 public:
  // What is known of why nothing answers; empty: nothing.
  using GiveUp = UniqueFunction<void(const std::string& cause)>;
  // `store`: its name, for people. `look`: for why it does not answer; tells OnCause, now or later.
  SlowCalls(EventLoop* loop, std::string store, SlowRequestsCore::Options options,
            UniqueFunction<void()> look);

  // `call` counts up. At the deadline `give_up` is called, which may destroy this object, unless
  // the call has ended.
  void Begin(uint64_t call, MonotonicTime deadline, std::string what, GiveUp give_up);
  // It is answered, whatever the store said. Also of one that was given up.
  void OnAnswered(uint64_t call);
  // There will be no answer, as the store's own library says.
  void OnSilence(uint64_t call);
  // True: the connection that the look made is to be taken instead.
  bool OnCause(std::string cause);
  const std::string& cause() const { return core_.cause(); }

 private:
  void OnTime();
  void Carry(const SlowRequestsCore::Effects& effects);
  void SetTimer();

  EventLoop* const loop_;
  SlowRequestsCore core_;
  UniqueFunction<void()> look_;
  std::map<uint64_t, GiveUp> calls_;
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast::storage
