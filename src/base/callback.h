// The one callback type of all ports. Only a Scope (scope.h) makes one, so that a port can't be
// given a callback that outlives what it speaks of: when the scope has ended, calling it does
// nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tailcast/base/unique_function.h"

namespace tailcast {

class Scope;
class Timer;

namespace internal {

// What a scope and its callbacks share. `ended` belongs to the loop's thread; callbacks may be
// destroyed on any.
struct ScopeState {
  std::atomic<uint32_t> references{1};
  bool ended = false;
};

class ScopeReference {
 public:
  ScopeReference() = default;
  // Takes over one reference.
  explicit ScopeReference(ScopeState* state) : state_(state) {}
  ScopeReference(const ScopeReference& other) : state_(other.state_) {
    if (state_ != nullptr) state_->references.fetch_add(1, std::memory_order_relaxed);
  }
  ScopeReference(ScopeReference&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  ScopeReference& operator=(ScopeReference other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~ScopeReference() {
    if (state_ != nullptr && state_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete state_;
    }
  }
  bool ended() const { return state_ != nullptr && state_->ended; }
  void End() {
    if (state_ != nullptr) state_->ended = true;
  }

 private:
  ScopeState* state_ = nullptr;
};

// What Scope::Bind returns: turns into a Callback of any signature that the function takes.
template <typename F>
class Bound {
 private:
  friend class ::tailcast::Scope;
  template <typename Signature>
  friend class CallbackOf;
  Bound(ScopeReference scope, F function)
      : scope_(std::move(scope)), function_(std::move(function)) {}
  ScopeReference scope_;
  F function_;
};

template <typename Signature>
class CallbackOf;

// Moved, not copied; empty or callable. Called exactly once unless the port's comment says
// otherwise, on the thread of the loop that its scope lives on; moved and destroyed on any.
template <typename... Args>
class CallbackOf<void(Args...)> {
 public:
  CallbackOf() = default;
  CallbackOf(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as a function pointer's
  template <typename F>
  requires(std::is_invocable_v<F&, Args...>)
      CallbackOf(Bound<F> bound)  // NOLINT(google-explicit-constructor): the one way to make one
      : scope_(std::move(bound.scope_)), run_(std::move(bound.function_)) {}
  CallbackOf(CallbackOf&& other) noexcept = default;
  CallbackOf& operator=(CallbackOf&& other) noexcept = default;

  explicit operator bool() const { return static_cast<bool>(run_); }
  bool operator==(std::nullptr_t) const { return !run_; }
  // Does nothing when the scope has ended. Not on an empty one.
  void operator()(Args... args) {
    if (!scope_.ended()) run_(std::forward<Args>(args)...);
  }
  // Calling it would do nothing: a driver may spare itself the work. Loop thread only.
  bool dropped() const { return scope_.ended(); }
  // This callback with its arguments: a task to post, on the same scope. This is how a driver's own
  // thread hands over a result.
  //   loop.Post(std::move(done).With(std::move(result)));
  template <typename... Given>
  requires(std::is_invocable_v<UniqueFunction<void(Args...)>&, Given...>)
      CallbackOf<void()> With(Given... given) && {
    CallbackOf<void()> task;
    task.scope_ = std::move(scope_);
    task.run_ = [run = std::move(run_),
                 arguments = std::tuple<Given...>(std::move(given)...)]() mutable {
      std::apply([&run](Given&... each) { run(std::move(each)...); }, arguments);
    };
    return task;
  }

 private:
  friend class ::tailcast::Timer;
  template <typename Signature>
  friend class CallbackOf;

  ScopeReference scope_;
  UniqueFunction<void(Args...)> run_;
};

}  // namespace internal

template <typename Signature>
using Callback = internal::CallbackOf<Signature>;
using Task = Callback<void()>;

}  // namespace tailcast
