// The callbacks of a handle or a store that wait for an answer. Whoever closes it answers them all,
// so that each is called exactly once: with its result, or with what its caller gets when it is
// closed first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"

namespace tailcast::storage {

// What is left of a call whose handle was closed. `what`: the file's name.
inline Status ClosedError(const std::string& what) {
  return CancelledError(what + ": the handle was closed");
}

// Numbered in the order of the calls, from 1; 0 is none. T is what its callback gets.
template <typename T>
struct CallId {
  uint64_t number = 0;
};

// Threads: the loop's.
class OutstandingCalls {
 public:
  // `closed`: what the callback gets if the call is closed before it is answered.
  template <typename T>
  CallId<T> Add(Callback<void(T)> done, T closed) {
    const CallId<T> id{++last_};
    calls_.emplace(id.number, std::make_unique<CallOf<T>>(std::move(done), std::move(closed)));
    return id;
  }
  // The callback, which the caller now has to call; empty if the call was closed or taken before:
  // a late answer.
  template <typename T>
  Callback<void(T)> Take(CallId<T> id) {
    const auto it = calls_.find(id.number);
    if (it == calls_.end()) return nullptr;
    Callback<void(T)> done = std::move(static_cast<CallOf<T>&>(*it->second).done);
    calls_.erase(it);
    return done;
  }
  // Calls it back, if it is still to be answered. This object may be gone then.
  template <typename T>
  void Answer(CallId<T> id, T result) {
    if (Callback<void(T)> done = Take(id); done != nullptr) done(std::move(result));
  }
  // Answers it on the next turn with what it gets when it is closed.
  void Close(uint64_t number, EventLoop& loop) {
    const auto call = calls_.extract(number);
    if (!call.empty()) loop.Post(call.mapped()->Closed());
  }
  // In the order of the calls.
  void CloseAll(EventLoop& loop) {
    // A loop that was shut down destroys the tasks now, and with them whatever they hold.
    for (auto& [number, call] : std::exchange(calls_, {})) loop.Post(call->Closed());
  }

 private:
  struct Call {
    virtual ~Call() = default;
    virtual Task Closed() = 0;
  };
  template <typename T>
  struct CallOf final : Call {
    CallOf(Callback<void(T)> d, T c) : done(std::move(d)), closed(std::move(c)) {}
    Task Closed() override { return std::move(done).With(std::move(closed)); }
    Callback<void(T)> done;
    T closed;
  };

  std::map<uint64_t, std::unique_ptr<Call>> calls_;
  uint64_t last_ = 0;
};

}  // namespace tailcast::storage
