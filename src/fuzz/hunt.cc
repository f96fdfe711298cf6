#include "tailcast/fuzz/hunt.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/coverage.h"
#include "tailcast/fuzz/mutator.h"

namespace tailcast::fuzz {
namespace {

constexpr unsigned kOneInputSeconds = 30;
constexpr size_t kMemoryBytesMax = size_t{4} << 30;  // of a target, code and stacks included
constexpr size_t kInputsKeptMax = 4096;
// Runs of one kept input in a row, each with another change.
constexpr int kChangesInARow = 16;

Mutator* g_mutator = nullptr;  // of the child

// What a child leaves behind; the input follows it.
struct Shared {
  uint64_t runs;
  uint64_t inputs_kept;
  uint64_t edges;
  uint64_t size;

  uint8_t* input() { return reinterpret_cast<uint8_t*>(this + 1); }
};

class SharedMemory {
 public:
  explicit SharedMemory(size_t size_max) : bytes_(sizeof(Shared) + size_max) {
    void* const at =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TAILCAST_CHECK(at != MAP_FAILED, "no memory to share with the child");
    shared_ = static_cast<Shared*>(at);
  }
  ~SharedMemory() { munmap(shared_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  Shared* operator->() const { return shared_; }

 private:
  const size_t bytes_;
  Shared* shared_;
};

// The exact bytes on the heap, so that a sanitizer sees a read behind them.
void RunOne(const Target& target, const uint8_t* data, size_t size) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);  // not null if it is empty, either
  std::memcpy(exact.get(), data, size);
  alarm(kOneInputSeconds);
  BeginRun();
  target.run(exact.get(), size);
}

// How it ended, or nothing if well.
std::optional<std::string> InChild(bool quiet, const std::function<void()>& work) {
  const pid_t child = fork();
  TAILCAST_CHECK(child >= 0, "no process for the target");
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
// Sanitizers map far more than they use; that of addresses has a limit of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const rlimit bytes = {kMemoryBytesMax, kMemoryBytesMax};
    setrlimit(RLIMIT_AS, &bytes);
#endif
    if (quiet) {
      const int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
      if (sink >= 0) dup2(sink, STDERR_FILENO);
    }
    work();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) TAILCAST_CHECK(errno == EINTR, "the child is gone");
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGALRM) return "no end after " + std::to_string(kOneInputSeconds) + " s";
    return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  if (WEXITSTATUS(status) != 0) return "exit code " + std::to_string(WEXITSTATUS(status));
  return std::nullopt;
}

class Campaign {
 public:
  Campaign(const Target& target, const HuntOptions& options, SharedMemory& shared)
      : target_(target),
        options_(options),
        shared_(shared),
        inputs_(target.seeds),
        mutator_(options.seed, &inputs_) {
    g_mutator = &mutator_;
    for (std::string& input : inputs_) input.resize(std::min(input.size(), options_.size_max));
    if (inputs_.empty()) inputs_.emplace_back();
  }

  void Run(MonotonicTime end) {
    const auto goes_on = [&] {
      return shared_->runs < options_.runs_max && ReadMonotonicClock() < end;
    };
    for (const std::string& input : std::vector<std::string>(inputs_)) {
      if (!goes_on()) return;
      Load(input);
      RunLoaded();
    }
    while (goes_on()) {
      // The input as it is first: its comparisons say what to change.
      const std::string input = inputs_[mutator_.rng().Below(inputs_.size())];
      Load(input);
      RunLoaded();
      mutator_.SetComparisons(Comparisons());
      for (int i = 0; i < kChangesInARow && goes_on(); ++i) {
        Load(input);
        Change();
        if (RunLoaded() > 0) Keep();
      }
    }
  }

 private:
  void Load(const std::string& input) {
    shared_->size = input.size();
    std::memcpy(shared_->input(), input.data(), input.size());
  }

  void Change() {
    uint8_t* const data = shared_->input();
    const auto draw = static_cast<unsigned int>(mutator_.rng().Next());
    shared_->size = target_.mutate != nullptr
                        ? target_.mutate(data, shared_->size, options_.size_max, draw)
                        : mutator_.Mutate(data, shared_->size, options_.size_max);
    TAILCAST_CHECK(shared_->size <= options_.size_max, "the target's mutator gave too much");
  }

  size_t RunLoaded() {
    ++shared_->runs;
    shared_->inputs_kept = inputs_.size();
    RunOne(target_, shared_->input(), shared_->size);
    const size_t news = EndRun();
    shared_->edges = EdgesSeen();
    return news;
  }

  void Keep() {
    std::string input(reinterpret_cast<const char*>(shared_->input()), shared_->size);
    if (inputs_.size() < kInputsKeptMax) {
      inputs_.push_back(std::move(input));
    } else {
      inputs_[mutator_.rng().Below(inputs_.size())] = std::move(input);
    }
  }

  const Target& target_;
  const HuntOptions options_;
  SharedMemory& shared_;
  std::vector<std::string> inputs_;
  Mutator mutator_;
};

}  // namespace

HuntReport Hunt(const Target& target, const HuntOptions& options) {
  SharedMemory shared(options.size_max);
  const MonotonicTime begin = ReadMonotonicClock();
  const std::optional<std::string> how =
      InChild(false, [&] { Campaign(target, options, shared).Run(begin + options.time); });
  HuntReport report;
  report.time = ReadMonotonicClock() - begin;
  report.runs = shared->runs;
  report.inputs_kept = shared->inputs_kept;
  report.edges = shared->edges;
  if (how.has_value()) {
    report.death = Death{
        {reinterpret_cast<const char*>(shared->input()), std::min(shared->size, options.size_max)},
        *how};
  }
  return report;
}

std::optional<Death> Replay(const Target& target, const std::string& input, bool quiet) {
  const std::optional<std::string> how = InChild(
      quiet, [&] { RunOne(target, reinterpret_cast<const uint8_t*>(input.data()), input.size()); });
  if (!how.has_value()) return std::nullopt;
  return Death{input, *how};
}

std::string Minimise(const Target& target, const Death& death, Duration time) {
  const MonotonicTime end = ReadMonotonicClock() + time;
  std::string best = death.input;
  const auto take = [&](const std::string& candidate) {
    const std::optional<Death> again = Replay(target, candidate, true);
    if (!again.has_value() || again->how != death.how) return false;
    best = candidate;
    return true;
  };
  for (size_t piece = std::max<size_t>(best.size() / 2, 1);;) {
    bool shorter = false;
    for (size_t at = 0; at < best.size() && ReadMonotonicClock() < end;) {
      std::string candidate = best;
      candidate.erase(at, piece);
      if (take(candidate)) {
        shorter = true;
      } else {
        at += piece;
      }
    }
    if (ReadMonotonicClock() >= end) return best;
    if (piece == 1 && !shorter) break;
    piece = std::max<size_t>(piece / 2, 1);
  }
  for (size_t at = 0; at < best.size() && ReadMonotonicClock() < end; ++at) {
    if (best[at] == '\0') continue;
    std::string candidate = best;
    candidate[at] = '\0';
    take(candidate);
  }
  return best;
}

}  // namespace tailcast::fuzz

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max) {
  TAILCAST_CHECK(tailcast::fuzz::g_mutator != nullptr, "only a target's mutator calls it");
  return tailcast::fuzz::g_mutator->Mutate(data, size, size_max);
}
