// A first-in first-out queue with a fixed limit, for state that lives on one loop. A full queue
// refuses instead of growing: the caller decides what back-pressure means (design rule "everything
// is bounded").
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"

namespace tailcast {

// Not thread-safe. Memory grows up to the limit as it is needed and is kept.
template <typename T>
class BoundedQueue {
 public:
  // Holds at most `limit` items; limit > 0.
  explicit BoundedQueue(size_t limit) : limit_(limit) {
    TAILCAST_CHECK(limit > 0, "a queue needs room for one item");
  }

  size_t size() const { return size_; }
  size_t limit() const { return limit_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == limit_; }

  // False if the queue is full; `item` is then left as it was.
  [[nodiscard]] bool TryPush(T&& item) {
    if (full()) return false;
    if (size_ == slots_.size()) Grow();
    slots_[Slot(size_)].emplace(std::move(item));
    ++size_;
    return true;
  }
  [[nodiscard]] bool TryPush(const T& item) { return TryPush(T(item)); }

  // The oldest item. The queue must not be empty.
  T& front() { return at(0); }
  const T& front() const { return at(0); }
  // The i-th oldest; i < size().
  T& at(size_t i) {
    TAILCAST_CHECK(i < size_, "past the end of a queue");
    return *slots_[Slot(i)];
  }
  const T& at(size_t i) const { return const_cast<BoundedQueue*>(this)->at(i); }

  // Takes the oldest item out. The queue must not be empty.
  T Pop() {
    T item = std::move(front());
    slots_[head_].reset();
    head_ = (head_ + 1) % slots_.size();
    --size_;
    return item;
  }
  void Clear() {
    while (!empty()) Pop();
  }

 private:
  size_t Slot(size_t i) const { return (head_ + i) % slots_.size(); }
  void Grow() {
    size_t capacity = slots_.empty() ? 8 : slots_.size() * 2;
    if (capacity > limit_) capacity = limit_;
    std::vector<std::optional<T>> larger(capacity);
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(slots_[Slot(i)]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  const size_t limit_;
  std::vector<std::optional<T>> slots_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace tailcast
