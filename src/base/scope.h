// How an object that lives on an event loop gives out callbacks. Three things:
//
//   Scope    binds callbacks to the life of their owner: when the scope has ended they are dropped,
//            however late, often or by whomever they are called
//   Timer    one alarm; destroying it cancels it
//   Retire   ends an object now and frees it on a later turn, for an owner that may be running
//            inside one of the object's own callbacks
//
//   class Poller {
//    public:
//     void Start() {
//       store_->List(dir_, scope_.Bind([this](Result<std::vector<DirEntry>> entries) { ... }));
//     }
//    private:
//     Timer next_{loop_};
//     Scope scope_;  // the last member: it ends before anything that its callbacks use
//   };
//
// What lives shorter than its owner (a file, a connection, one fetch) has a scope of its own, so
// that no callback has to ask whether it is still meant. What is captured lives as long as the
// callback does, dropped or not: a port may write into a captured buffer until it lets go of the
// callback.
#pragma once

#include <memory>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"

namespace tailcast {

// Threads: the loop's thread (or, while nobody turns the loop, the one that will do so next). Bind
// also on others, as long as the scope is not being destroyed.
class Scope {
 public:
  Scope() = default;
  ~Scope() { End(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // `function`, to be given to a port as a callback of any signature that it can be called with.
  template <typename F>
  [[nodiscard]] internal::Bound<std::decay_t<F>> Bind(F&& function) const {
    return {state_, std::forward<F>(function)};
  }

  // Drops what was bound and what will be bound. Ending twice is ending once.
  void End() { state_.End(); }
  // Drops what was bound before; what is bound from now on runs. For what begins anew, like the
  // next attempt to connect.
  void Restart() {
    state_.End();
    state_ = internal::ScopeReference(new internal::ScopeState());
  }
  bool ended() const { return state_.ended(); }

  // For code that calls out in the middle of its work and may be destroyed meanwhile:
  //   const Scope::Watcher self = scope_.Watch();
  //   on_change_(view_);
  //   if (self.ended()) return;  // `this` may be gone; or the scope was restarted
  class Watcher {
   public:
    bool ended() const { return state_.ended(); }

   private:
    friend class Scope;
    explicit Watcher(internal::ScopeReference state) : state_(std::move(state)) {}
    internal::ScopeReference state_;
  };
  Watcher Watch() const { return Watcher(state_); }

 private:
  internal::ScopeReference state_{new internal::ScopeState()};
};

// One alarm of an owner. Loop thread only.
class Timer {
 public:
  explicit Timer(EventLoop& loop) : loop_(loop) {}
  ~Timer() { Cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Runs `task` once, at `when` or as soon as possible after; replaces what was set before. The
  // task may set the timer again, or destroy it.
  void At(MonotonicTime when, Task task) {
    Cancel();
    when_ = when;
    Task fire;
    fire.run_ = [this, task = std::move(task)]() mutable {
      id_ = 0;
      task();
    };
    id_ = loop_.At(when, std::move(fire));
  }
  void After(Duration delay, Task task) { At(loop_.Now() + delay, std::move(task)); }
  void Cancel() { loop_.Cancel(std::exchange(id_, 0)); }
  bool armed() const { return id_ != 0; }
  // Of the alarm that is set.
  MonotonicTime when() const { return when_; }

 private:
  EventLoop& loop_;
  TimerId id_ = 0;
  MonotonicTime when_;
};

// Frees `object` on a later turn; the caller may be inside one of its callbacks. An object that has
// a scope of its own and shows it as `scope()` is ended now. What others have bound for it (an
// agent's callbacks on a connection that it retires) ends with their scopes. On a loop that was
// shut down the object is freed at once, as everything that is posted there.
template <typename T>
void Retire(EventLoop& loop, std::unique_ptr<T> object) {
  if (object == nullptr) return;
  if constexpr (requires { object->scope().End(); }) object->scope().End();
  const Scope none;  // nothing is to be run: the task only carries the object to its turn
  loop.Post(none.Bind([object = std::move(object)] {}));
}

}  // namespace tailcast
