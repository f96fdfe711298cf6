#include "tailcast/storage/file_faults.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

struct Fault {
  std::string call;
  int error = 0;     // or
  int delay_ms = 0;  // so long it takes
  double probability = 0;
};
// Those that a failing disk fails. Words in shared memory have no errors.
constexpr std::string_view kCalls[] = {"create", "open", "write", "read", "flush", "truncate"};
constexpr std::pair<std::string_view, int> kErrors[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}};

template <typename List>
std::string Names(const List& list) {
  std::string names;
  for (const auto& [name, value] : list) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Result<Fault> Parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return InvalidArgumentError(std::string(kFileFaultsVariable) + ": '" + std::string(text) +
                                "': " + why + "; as write:ENOSPC:0.01");
  };
  const size_t first = text.find(':');
  const size_t second = first == text.npos ? first : text.find(':', first + 1);
  if (second == text.npos) return bad("it is not CALL:ERROR:PROBABILITY");
  Fault fault;
  std::string calls;
  for (const std::string_view call : kCalls) {
    if (text.substr(0, first) == call) fault.call = call;
    calls += (calls.empty() ? "" : ", ") + std::string(call);
  }
  if (fault.call.empty()) return bad("the call is none of " + calls);
  for (const auto& [name, number] : kErrors) {
    if (text.substr(first + 1, second - first - 1) == name) fault.error = number;
  }
  const std::string_view what = text.substr(first + 1, second - first - 1);
  if (fault.error == 0 && what.ends_with("ms")) {
    const char* const unit = what.data() + what.size() - 2;
    const auto [rest, error] = std::from_chars(what.data(), unit, fault.delay_ms);
    if (error != std::errc() || rest != unit || fault.delay_ms < 1) fault.delay_ms = 0;
  }
  if (fault.error == 0 && fault.delay_ms == 0) {
    return bad("the error is none of " + Names(kErrors) + ", nor a time, as 300ms");
  }
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + second + 1, end, fault.probability);
  if (error != std::errc() || rest != end || !(fault.probability >= 0 && fault.probability <= 1)) {
    return bad("the probability is no number from 0 to 1");
  }
  return fault;
}

// Calls come from the threads of a pool.
class Draw {
 public:
  Draw(std::vector<Fault> faults, uint64_t seed) : faults_(std::move(faults)), rng_(seed) {}

  Status Before(std::string_view call, const std::string& path) {
    for (const Fault& fault : faults_) {
      if (fault.call != call) continue;
      if (!Chance(fault.probability)) continue;
      if (fault.error != 0) {
        return ErrnoStatus(fault.error, std::string(call) + " " + path + " (planted)");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.delay_ms));
    }
    return OkStatus();
  }

 private:
  bool Chance(double probability) {
    const std::lock_guard lock(mutex_);
    return rng_.Chance(probability);
  }

  const std::vector<Fault> faults_;
  std::mutex mutex_;
  Rng rng_;
};

}  // namespace

Result<std::unique_ptr<FileOps>> WithFileFaults(std::unique_ptr<FileOps> ops,
                                                const std::string& faults, uint64_t seed) {
  std::vector<Fault> parsed;
  std::string_view left = faults;
  while (!left.empty()) {
    const size_t comma = left.find(',');
    TAILCAST_ASSIGN_OR_RETURN(Fault fault, Parse(left.substr(0, comma)));
    parsed.push_back(std::move(fault));
    left = comma == left.npos ? std::string_view() : left.substr(comma + 1);
  }
  return HookFileOps(std::move(ops), [draw = std::make_shared<Draw>(std::move(parsed), seed)](
                                         std::string_view call, const std::string& path) {
    return draw->Before(call, path);
  });
}

Result<std::unique_ptr<FileOps>> WithFileFaultsOfEnvironment(std::unique_ptr<FileOps> ops) {
  const char* const faults = std::getenv(kFileFaultsVariable);
  if (faults == nullptr || *faults == '\0') return ops;
  if (!kFaultPointsCompiledIn) {
    return FailedPreconditionError(std::string(kFileFaultsVariable) +
                                   " is set, and this build has no fault points; unset it");
  }
  kLog.Warn("the disk fails on purpose: ", kFileFaultsVariable, "=", faults);
  return WithFileFaults(std::move(ops), faults, RandomSeed());
}

}  // namespace tailcast::storage
