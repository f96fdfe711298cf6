// The steps of the posix driver in blocking form: create, append, fence, read, delete. Every system
// call goes through FileOps, in an order that tla/Fencing.tla proves; comments name its actions.
// The asynchronous Store around it is posix_store.h.
//
// Rules that the steps keep (design rule "committed first"):
//  * Only the swap of the commit word from (our epoch, old length) to (our epoch, new length)
//    commits an append, and it comes after the flush of the bytes and of a slot that repeats the
//    length.
//  * A takeover swaps the epoch first, then makes an inode of its own. So a writer that was stopped
//    between any two steps and wakes up later writes only where nobody reads, and cannot commit.
//  * The word counts within one boot. After a restart of the machine the length is that of the
//    newest slot of the newest segment whose bytes match their checksum.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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
#include "tailcast/storage/store.h"

namespace tailcast::storage::posix {

enum class Durability : uint8_t {
  kDurable,    // an acknowledged append survives kill -9 and power loss: one fdatasync each
  kPageCache,  // it survives kill -9 only; after a restart of the machine the file is DataLoss
};

// Planted bugs: each must be caught by a test. kNone in every real process.
enum class PlantedBug : uint8_t {
  kNone,
  kNoCommitCheck,      // an append stores the word instead of swapping it
  kNoSlot,             // the slot is not written
  kOneSlot,            // both slots are one
  kAckBeforeFlush,     // no fdatasync
  kNoRangeChecksum,    // a slot is believed without looking at its bytes
  kTrustWord,          // the word is believed after a restart of the machine
  kSlotsOfAnySegment,  // recovery takes the longest slot of all segments
  kSameInode,          // a takeover goes on in the inode that the earlier writer has open
  kSegmentNotDurable,  // a fence returns before its segment survives a power loss
  kFencedNotRevoked,   // "fenced" is reported although the flushed slot is still there
  kWordReadLate,       // recovery reads the word to be swapped after the slots, once
  kNoBracket,          // recovery and readers do not look at the boot tag again
  kListingKept,        // a reader lists segments only when the epoch changes
  kClaimNotDurable,    // no flush of the folder between claim and name
  kNoTombstone,        // delete removes names without marking the file
};

// What all steps share. Outlives everything made with it.
struct Context {
  FileOps* ops = nullptr;
  Durability durability = Durability::kDurable;
  PlantedBug bug = PlantedBug::kNone;

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
};

// One inode of a file, open.
struct Segment {
  Header header;
  std::shared_ptr<OpsFile> file;
};
// All inodes of a file that a reader or a recovery found, by epoch.
struct Segments {
  std::vector<Segment> by_epoch;
  // For which words the list is complete: any of epoch `epoch` if it has that epoch's segment, else
  // only lengths up to `length`.
  CommitWord listed_at;
  bool has_epoch = false;
};
// A file by its first inode, open and mapped: where the file is and whose word it is.
struct FirstInode {
  std::string folder;
  std::string name;
  Header header;
  std::shared_ptr<OpsFile> file;
  std::shared_ptr<SharedPage> page;
};

// The right to append. One thread at a time.
class Appender {
 public:
  Appender(const Context* context, uint64_t writer, FirstInode file, Segment segment,
           CommitWord word);
  ~Appender();

  // As AppendFile::AppendAt, offsets checked by the caller: appends at committed_length(). After
  // kFenced or kUnknown only the destructor may be called.
  AppendResult Append(std::string_view bytes);

  int64_t committed_length() const { return word_.length; }
  uint64_t epoch() const { return word_.epoch; }
  const std::string& name() const { return file_.name; }

 private:
  AppendResult Fail(AppendOutcome outcome, Status error) const;

  const Context* const context_;
  const uint64_t writer_;
  const FirstInode file_;
  const Segment segment_;
  CommitWord word_;
  int next_slot_ = 0;
};

// A view for reading. Any thread.
class Reader {
 public:
  Reader(const Context* context, FirstInode file);
  ~Reader();

  // The committed length, without a system call, if this boot's processes wrote the file; nothing
  // if Size has to be asked.
  bool FastSize(FileSize& size) const;
  // Blocks.
  Result<FileSize> Size();
  // Blocks. As ReadFile::Read.
  Result<std::string> Read(int64_t offset, int64_t length);

 private:
  struct View {
    CommitWord committed;
    std::shared_ptr<const Segments> segments;
  };
  Result<View> Look(bool want_segments);
  void LogOldView(int64_t length, bool booted) const;

  const Context* const context_;
  const FirstInode file_;
  std::mutex mutex_;
  std::shared_ptr<const Segments> segments_;  // guarded by mutex_
  // What recovery computed from the slots while the boot tag was `old_tag_`; guarded by mutex_.
  uint64_t old_tag_ = 0;
  View old_view_;
};

// Errors as documented for Store. `folder` and names were checked by the caller.
Result<std::unique_ptr<Appender>> CreateExclusive(const Context& context, const std::string& folder,
                                                  const std::string& name, const std::string& key);
Result<std::unique_ptr<Appender>> OpenFencing(const Context& context, const std::string& folder,
                                              const std::string& name);
Result<std::unique_ptr<Reader>> OpenRead(const Context& context, const std::string& folder,
                                         const std::string& name);
Status Delete(const Context& context, const std::string& folder, const std::string& name);
Result<std::vector<std::string>> List(const Context& context, const std::string& folder);
Result<std::vector<std::string>> ListFolders(const Context& context, const std::string& folder);

}  // namespace tailcast::storage::posix
