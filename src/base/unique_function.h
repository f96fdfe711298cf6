// A function that is moved, not copied: what std::function lacks, and std::move_only_function will
// have. Of this library alone, because users include it: their own abseil may be another one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace tailcast {

template <typename Signature>
class UniqueFunction;

namespace internal {

// Of these an empty one makes an empty UniqueFunction.
template <typename F>
inline constexpr bool kMayBeEmpty = std::is_pointer_v<F> || std::is_member_pointer_v<F>;
template <typename Signature>
inline constexpr bool kMayBeEmpty<std::function<Signature>> = true;
template <typename Signature>
inline constexpr bool kMayBeEmpty<UniqueFunction<Signature>> = true;

}  // namespace internal

// Empty or callable. What it is made of is kept in place if it is at most three pointers large and
// moves without throwing, else on the heap. Calling an empty one is undefined, moving from one
// leaves it empty.
template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as a function pointer's
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      UniqueFunction(F&& function) {  // NOLINT(*-explicit-*,*-forwarding-*): as std::function's
    using Kept = std::decay_t<F>;
    static_assert(std::is_constructible_v<Kept, F>, "it can't be copied: move it here");
    if constexpr (internal::kMayBeEmpty<Kept>) {
      if (IsEmpty<Kept>(function)) return;
    }
    if constexpr (InPlace<Kept>()) {
      ::new (static_cast<void*>(&room_)) Kept(std::forward<F>(function));
      operations_ = &kInPlace<Kept>;
    } else {
      ::new (static_cast<void*>(&room_)) Kept*(new Kept(std::forward<F>(function)));
      operations_ = &kOnHeap<Kept>;
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { Take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this == &other) return *this;
    // What it was is destroyed last: that may reach back to this.
    UniqueFunction former;
    former.Take(*this);
    Take(other);
    return *this;
  }
  ~UniqueFunction() {
    if (operations_ != nullptr) operations_->destroy(&room_);
  }

  explicit operator bool() const { return operations_ != nullptr; }
  bool operator==(std::nullptr_t) const { return operations_ == nullptr; }
  R operator()(Args... args) { return operations_->run(&room_, std::forward<Args>(args)...); }

 private:
  struct Operations {
    R (*run)(void* room, Args&&... args);
    void (*move)(void* from, void* to);  // and destroys what is left in `from`
    void (*destroy)(void* room);
  };
  struct Room {
    alignas(void*) std::byte bytes[3 * sizeof(void*)];
  };

  template <typename F>
  static bool IsEmpty(const F& function) {
    return function == nullptr;
  }
  template <typename F>
  static constexpr bool InPlace() {
    return sizeof(F) <= sizeof(Room) && alignof(F) <= alignof(Room) &&
           std::is_nothrow_move_constructible_v<F>;
  }
  template <typename F>
  static F& At(void* room) {
    return *std::launder(static_cast<F*>(room));
  }
  template <typename F>
  static R Run(F& function, Args&&... args) {
    if constexpr (std::is_void_v<R>) {
      std::invoke(function, std::forward<Args>(args)...);
    } else {
      return std::invoke(function, std::forward<Args>(args)...);
    }
  }
  template <typename F>
  static constexpr Operations kInPlace = {
      [](void* room, Args&&... args) -> R { return Run(At<F>(room), std::forward<Args>(args)...); },
      [](void* from, void* to) {
        ::new (to) F(std::move(At<F>(from)));
        At<F>(from).~F();
      },
      [](void* room) { At<F>(room).~F(); }};
  template <typename F>
  static constexpr Operations kOnHeap = {[](void* room, Args&&... args) -> R {
                                           return Run(*At<F*>(room), std::forward<Args>(args)...);
                                         },
                                         [](void* from, void* to) { ::new (to) F*(At<F*>(from)); },
                                         [](void* room) { delete At<F*>(room); }};

  // This one is empty.
  void Take(UniqueFunction& other) noexcept {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(&other.room_, &room_);
  }

  const Operations* operations_ = nullptr;
  Room room_;
};

}  // namespace tailcast
