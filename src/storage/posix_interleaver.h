// For tests of the posix driver's steps: processes interleaved at every call. A model checker of
// the real code: tla/Fencing.tla has the same steps.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/storage/file_ops.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tailcast::storage::posix {

// Processes of which one moves at a time, from one call to its next; who is drawn from a seed. They
// are coroutines on stacks of their own (ucontext), all on the test's thread: a switch costs less
// than a microsecond and the operating system has no part in the order.
class Interleaver {
 public:
  // The body of a process. All its calls go through the hook that it is given.
  using Body = std::function<void(const FileOpsHook& hook)>;

  // Runs the bodies until all have ended or `calls_max` calls were made; then each further call of
  // anybody fails, as for a process that is dead.
  void Run(const std::vector<Body>& bodies, Rng& rng, int64_t calls_max) {
    rng_ = &rng;
    calls_left_ = calls_max;
    // Swarm: some seeds let one process run for long, some switch at each call.
    stay_ = rng.Chance(0.5) ? rng.Unit() : 0;
    fibers_.clear();
    for (const Body& body : bodies) fibers_.push_back(MakeFiber(body, fibers_.size()));
#if defined(__SANITIZE_THREAD__)
    main_.tsan = __tsan_get_current_fiber();
#endif
    running_ = this;
    Switch(main_, Next());
    running_ = nullptr;
#if defined(__SANITIZE_THREAD__)
    for (const auto& fiber : fibers_) __tsan_destroy_fiber(fiber->tsan);
#endif
  }

 private:
  static constexpr size_t kStackBytes = 512 << 10;
  struct Fiber {
    ucontext_t context;
    char* stack = nullptr;
    const Body* body = nullptr;
    bool ended = false;
    // For the sanitizers, which want to know of switches.
    const void* stack_bottom = nullptr;
    size_t stack_size = 0;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
  };

  static std::unique_ptr<Fiber> MakeFiber(const Body& body, size_t number) {
    auto fiber = std::make_unique<Fiber>();
    fiber->body = &body;
    // Stacks are kept: making them anew would be most of the time.
    static std::vector<std::unique_ptr<char[]>> stacks;
    if (number == stacks.size()) {
      stacks.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
    }
    fiber->stack = stacks[number].get();
    TAILCAST_CHECK(getcontext(&fiber->context) == 0, "getcontext");
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, &Interleaver::Entry, 0);
#if defined(__SANITIZE_THREAD__)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return fiber;
  }

  static void Entry() {
    Interleaver& self = *running_;
    Fiber& fiber = *self.current_;
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (self.main_.stack_bottom == nullptr) {  // only the test's own stack comes in unknown
      self.main_.stack_bottom = bottom;
      self.main_.stack_size = size;
    }
#endif
    const FileOpsHook hook = [&](std::string_view, const std::string&) {
      if (!self.rng_->Chance(self.stay_)) self.Switch(fiber, self.Next());
      return self.calls_left_-- > 0 ? OkStatus() : UnavailableError("the process is dead");
    };
    (*fiber.body)(hook);
    fiber.ended = true;
    self.Switch(fiber, self.Next());
    TAILCAST_CHECK(false, "an ended process was woken");
  }

  // One of those that have not ended, or the test.
  Fiber& Next() {
    std::vector<Fiber*> waiting;
    for (const auto& fiber : fibers_) {
      if (!fiber->ended) waiting.push_back(fiber.get());
    }
    return waiting.empty() ? main_ : *waiting[rng_->Below(waiting.size())];
  }

  void Switch(Fiber& from, Fiber& to) {
    if (&from == &to) return;
    current_ = &to;
#if defined(__SANITIZE_ADDRESS__)
    const bool to_main = &to == &main_;
    __sanitizer_start_switch_fiber(from.ended ? nullptr : &from.fake_stack,
                                   to_main ? main_.stack_bottom : to.stack,
                                   to_main ? main_.stack_size : kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
    TAILCAST_CHECK(swapcontext(&from.context, &to.context) == 0, "swapcontext");
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
  }

  static inline Interleaver* running_ = nullptr;
  Rng* rng_ = nullptr;
  int64_t calls_left_ = 0;
  double stay_ = 0;
  Fiber main_;
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace tailcast::storage::posix
