#include "tailcast/storage/mapped_page.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "tailcast/base/check.h"

namespace tailcast::storage {
namespace {

constexpr size_t kPageBytes = 4096;

// The access that this thread is in.
struct Access {
  sigjmp_buf back;
  const char* page = nullptr;
};
thread_local Access* current_access = nullptr;
struct sigaction handler_before;

void OnBusError(int signal, siginfo_t* info, void* context) {
  const Access* access = current_access;
  const auto* address = static_cast<const char*>(info->si_addr);
  if (access != nullptr && address >= access->page && address < access->page + kPageBytes) {
    // Who wraps handlers (TSan does) blocks all signals within, and the jump would keep it so.
    pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(current_access->back, 1);
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
    handler_before.sa_sigaction(signal, info, context);
  } else if (handler_before.sa_handler == SIG_DFL || handler_before.sa_handler == SIG_IGN) {
    sigaction(signal, &handler_before, nullptr);  // the access is made again, and ends the process
  } else {
    handler_before.sa_handler(signal);
  }
}

void SetHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = OnBusError;
    // Not blocked within: it may be left by a jump. On the thread's own stack, if it has one.
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    TAILCAST_CHECK(sigaction(SIGBUS, &action, &handler_before) == 0, "sigaction");
  });
}

#if defined(__SANITIZE_THREAD__)
[[gnu::no_sanitize("thread")]] void Touch(const volatile char* page) { (void)*page; }
#endif

class MappedPage : public SharedPage {
 public:
  MappedPage(void* memory, bool writable)
      : memory_(static_cast<char*>(memory)), writable_(writable) {}
  ~MappedPage() override { munmap(memory_, kPageBytes); }

  uint64_t Load(int64_t offset) override {
    uint64_t value = 0;
    Guarded([&] { value = Word(offset).load(); });
    return lost_.load() ? 0 : value;
  }
  void Store(int64_t offset, uint64_t value) override {
    TAILCAST_CHECK(writable_, "a page mapped for reading");
    Guarded([&] { Word(offset).store(value); });
  }
  bool CompareAndSwap(int64_t offset, uint64_t expected, uint64_t desired) override {
    TAILCAST_CHECK(writable_, "a page mapped for reading");
    bool swapped = false;
    Guarded([&] { swapped = Word(offset).compare_exchange_strong(expected, desired); });
    return swapped;
  }
  bool lost() const override { return lost_.load(); }
  bool resident() const override {
    unsigned char pages = 0;
    return mincore(memory_, kPageBytes, &pages) == 0 && (pages & 1) != 0;
  }

 private:
  std::atomic_ref<uint64_t> Word(int64_t offset) {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_ + offset));
  }
  // Nothing that has to be destroyed may live in `access`: it may be left by a jump.
  template <typename F>
  void Guarded(F&& access) {
    Access guard;
    guard.page = memory_;
    if (sigsetjmp(guard.back, 0) != 0) {  // NOLINT(cert-err52-cpp): the way out of a signal
      current_access = nullptr;
      lost_.store(true);
      return;
    }
    current_access = &guard;
    std::atomic_signal_fence(std::memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__)
    Touch(memory_);  // an atomic access has a lock of TSan, which the jump would leave locked
#endif
    access();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    current_access = nullptr;
  }

  char* const memory_;
  const bool writable_;
  std::atomic<bool> lost_{false};
};
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

}  // namespace

Result<std::unique_ptr<SharedPage>> MapFirstPage(int fd, bool writable, const std::string& path) {
  SetHandler();
  void* memory =
      mmap(nullptr, kPageBytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map " + path);
  return std::unique_ptr<SharedPage>(std::make_unique<MappedPage>(memory, writable));
}

}  // namespace tailcast::storage
