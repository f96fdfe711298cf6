#include "tailcast/storage/file_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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
  int error = 0;      // or
  int delay_ms = 0;   // so long it takes, or
  bool lost = false;  // it reports success and has done nothing, or
  int stop_at = 0;    // before the call of this number, from 1, the process stops itself
  double probability = 0;
  int64_t calls = 0;  // so far; counted for stop_at
  std::string path;   // of files whose path has it
  std::string token;  // who creates this file stops; empty: everybody
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

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1)) {
    parts.push_back(text.substr(0, end));
  }
  parts.push_back(text);
  return parts;
}

Result<Fault> Parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return InvalidArgumentError(std::string(kFileFaultsVariable) + ": '" + std::string(text) +
                                "': " + why + "; as write:ENOSPC:0.01");
  };
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() < 3 || parts.size() > 5) {
    return bad("it is not CALL:ERROR:PROBABILITY, nor that and :PATH");
  }
  Fault fault;
  std::string calls;
  for (const std::string_view call : kCalls) {
    if (parts[0] == call) fault.call = call;
    calls += (calls.empty() ? "" : ", ") + std::string(call);
  }
  if (fault.call.empty()) return bad("the call is none of " + calls);
  const std::string_view what = parts[1];
  for (const auto& [name, number] : kErrors) {
    if (what == name) fault.error = number;
  }
  fault.lost = what == "lost";
  if (fault.lost && fault.call != "write" && fault.call != "flush") {
    return bad("lost is what a write or flush can be");
  }
  if (fault.error == 0 && what.ends_with("ms")) {
    const char* const unit = what.data() + what.size() - 2;
    const auto [rest, error] = std::from_chars(what.data(), unit, fault.delay_ms);
    if (error != std::errc() || rest != unit || fault.delay_ms < 1) fault.delay_ms = 0;
  }
  const bool stops = what == "stop";
  if (fault.error == 0 && fault.delay_ms == 0 && !fault.lost && !stops) {
    return bad("the error is none of " + Names(kErrors) + ", lost, stop, nor a time, as 300ms");
  }
  if (parts.size() > 3) fault.path = parts[3];
  if (parts.size() > 4) {
    if (!stops || parts[4].empty()) return bad("what may follow the path is the token of a stop");
    fault.token = parts[4];
  }
  const char* const end = parts[2].data() + parts[2].size();
  if (stops) {
    const auto [rest, error] = std::from_chars(parts[2].data(), end, fault.stop_at);
    if (error != std::errc() || rest != end || fault.stop_at < 1) {
      return bad("before which call it stops is no number from 1");
    }
    return fault;
  }
  const auto [rest, error] = std::from_chars(parts[2].data(), end, fault.probability);
  if (error != std::errc() || rest != end || !(fault.probability >= 0 && fault.probability <= 1)) {
    return bad("the probability is no number from 0 to 1");
  }
  return fault;
}

// False: another process has it.
bool Take(const std::string& token) {
  if (token.empty()) return true;
  const int file = ::open(token.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    if (errno != EEXIST) kLog.Warn(ErrnoStatus(errno, "token " + token + " (planted)"));
    return false;
  }
  const std::string pid = std::to_string(::getpid());
  const bool written = ::write(file, pid.data(), pid.size()) == static_cast<ssize_t>(pid.size());
  ::close(file);
  if (!written) kLog.Warn("token ", token, " is empty (planted)");
  return true;
}

// Calls come from the threads of a pool.
class Draw {
 public:
  Draw(std::string root, std::vector<Fault> faults, uint64_t seed)
      : root_(std::move(root)), faults_(std::move(faults)), rng_(seed) {}

  Status Before(std::string_view call, const std::string& path) {
    for (Fault& fault : faults_) {
      if (fault.lost || !Falls(fault, call, path)) continue;
      if (fault.stop_at > 0) {
        kLog.Warn("stops before: ", call, " ", path, " (planted)");
        ::kill(::getpid(), SIGSTOP);
        continue;
      }
      if (fault.error != 0) {
        return ErrnoStatus(fault.error, std::string(call) + " " + path + " (planted)");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.delay_ms));
    }
    return OkStatus();
  }

  bool Loses(std::string_view call, const std::string& path) {
    for (Fault& fault : faults_) {
      if (!fault.lost || !Falls(fault, call, path)) continue;
      kLog.Warn("lost: ", call, " ", path, " (planted)");
      return true;
    }
    return false;
  }

 private:
  bool Falls(Fault& fault, std::string_view call, const std::string& path) {
    if (fault.call != call || (root_ + "/" + path).find(fault.path) == std::string::npos) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    if (fault.stop_at > 0) return ++fault.calls == fault.stop_at && Take(fault.token);
    return rng_.Chance(fault.probability);
  }

  const std::string root_;
  std::vector<Fault> faults_;
  std::mutex mutex_;
  Rng rng_;
};

}  // namespace

Result<std::unique_ptr<FileOps>> WithFileFaults(std::unique_ptr<FileOps> ops,
                                                const std::string& root, const std::string& faults,
                                                uint64_t seed) {
  std::vector<Fault> parsed;
  bool loses = false;
  for (const std::string_view text : Split(faults, ',')) {
    TAILCAST_ASSIGN_OR_RETURN(Fault fault, Parse(text));
    loses |= fault.lost;
    parsed.push_back(std::move(fault));
  }
  const auto draw = std::make_shared<Draw>(root, std::move(parsed), seed);
  return HookFileOps(
      std::move(ops),
      [draw](std::string_view call, const std::string& path) { return draw->Before(call, path); },
      loses ? FileOpsLoss([draw](std::string_view call, const std::string& path) {
        return draw->Loses(call, path);
      })
            : nullptr);
}

Result<std::unique_ptr<FileOps>> WithFileFaultsOfEnvironment(std::unique_ptr<FileOps> ops,
                                                             const std::string& root) {
  const char* const faults = std::getenv(kFileFaultsVariable);
  if (faults == nullptr || *faults == '\0') return ops;
  if (!kFaultPointsCompiledIn) {
    return FailedPreconditionError(std::string(kFileFaultsVariable) +
                                   " is set, and this build has no fault points; unset it");
  }
  kLog.Warn("the disk fails on purpose: ", kFileFaultsVariable, "=", faults);
  return WithFileFaults(std::move(ops), root, faults, RandomSeed());
}

}  // namespace tailcast::storage
