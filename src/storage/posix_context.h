// What all steps of the posix driver share: the system calls and how durable appends are to be, the
// folders that need no more flushes, and the log of steps. Internal to the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/step_log.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/posix_format.h"

namespace tailcast::storage::posix {

class Reserve;

// How often a lost race is run again before the caller is told to (LostRace).
inline constexpr int kAttemptsMax = 100;

// Outlives everything made with it. Any thread.
struct Context {
  FileOps* ops = nullptr;
  Durability durability = Durability::kDurable;
  // Not null: messages are written as long as it is whole (posix_reserve.h).
  Reserve* reserve = nullptr;

  // Each step of each file, for tla/FencingTrace.tla, which says what it carries: written right
  // after the step, "writer" is the process' name and the number of the open handle. For tests.
  StepLog* steps = nullptr;
  mutable std::atomic<uint64_t> writers{0};  // handles numbered so far
  // Committed lengths only, for tla/DuelingWritersTrace.tla (PrimaryAppend).
  StepLog* lengths = nullptr;

  bool durable() const { return durability == Durability::kDurable; }

  // Folders that this process knows to be durable, with all above them.
  mutable std::mutex folders_mutex;
  mutable std::set<std::string> durable_folders;
  // By folder: see SegmentNames (posix_inodes.h).
  mutable std::map<std::string, std::shared_ptr<const std::vector<std::string>>> earlier_segments;
};

std::string Join(const std::string& folder, std::string_view name);
// Aborted.
Status LostRace(const std::string& what);

// Names made and removed in the folder survive a power loss from here on. Nothing to do under
// kPageCache.
Status FlushFolder(const Context& c, const std::string& folder);
// Before something is written that is no record of the cell. As Reserve::MayWrite.
Status CheckRoom(const Context& c, const std::string& what);
// Makes the folder and those above it, and sees that they survive a power loss: also if they
// existed, as whoever made them may not have got that far.
Status EnsureFolder(const Context& c, const std::string& folder);
// Somebody removed a folder that was known: EnsureFolder looks at all of them again.
void ForgetFolders(const Context& c);

// Fields of the log of steps.
std::string LogWord(CommitWord w);
std::string LogRange(int64_t at, int64_t bytes);
std::string LogFlag(const char* name, bool value);
// `writer` 0: a reader's step.
void LogStep(StepLog& log, std::string_view step, uint64_t writer, const std::string& fields);
// Fields are computed only when somebody logs.
#define TAILCAST_LOG_STEP(context, step, writer, fields)                             \
  do {                                                                               \
    if ((context).steps != nullptr) LogStep(*(context).steps, step, writer, fields); \
  } while (false)

}  // namespace tailcast::storage::posix
