// The bound on reads of keys under way: who finds no slot free waits for one, in order, and who
// finds too many waiting is refused.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"

namespace tailcast::cache {

// Threads: the loop's. Whoever waits runs on a later turn than the slot was given back, and takes
// the slot or leaves it to the next: none is lost on those that have no use for it any more.
class ReadSlots {
 public:
  // One slot, or none. Given back by its destruction at the latest; not after the ReadSlots.
  class Slot {
   public:
    Slot() = default;
    explicit Slot(ReadSlots* slots) : slots_(slots) { ++slots_->taken_; }
    Slot(Slot&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)) {}
    Slot& operator=(Slot&& other) noexcept {
      GiveBack();
      slots_ = std::exchange(other.slots_, nullptr);
      return *this;
    }
    ~Slot() { GiveBack(); }
    void GiveBack() {
      if (slots_ == nullptr) return;
      --slots_->taken_;
      std::exchange(slots_, nullptr)->WakeNext();
    }

   private:
    ReadSlots* slots_ = nullptr;
  };

  ReadSlots(EventLoop& loop, uint32_t slots_max, uint32_t waiting_max)
      : loop_(loop), slots_max_(slots_max), waiting_max_(waiting_max) {}

  bool any_free() const { return taken_ < slots_max_; }
  // There is one free.
  Slot Take() { return Slot(this); }
  // `ask` runs when a slot is free. False: too many wait, those included that have no use for it
  // any more but were not come to yet; `ask` is dropped.
  bool Wait(Task ask) {
    if (waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(ask));
    return true;
  }
  uint32_t taken() const { return taken_; }

 private:
  void WakeNext() {
    if (waiting_.empty() || std::exchange(waking_, true)) return;
    loop_.Post(scope_.Bind([this] {
      waking_ = false;
      while (any_free() && !waiting_.empty()) {
        Task ask = std::move(waiting_.front());
        waiting_.pop_front();
        ask();
      }
    }));
  }

  EventLoop& loop_;
  const uint32_t slots_max_, waiting_max_;
  uint32_t taken_ = 0;
  bool waking_ = false;  // a turn is under way to those that wait
  std::deque<Task> waiting_;
  Scope scope_;
};

}  // namespace tailcast::cache
