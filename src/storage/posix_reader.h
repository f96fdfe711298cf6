// Reading a file: how much of it is committed, and from which inodes the bytes come. Internal to
// the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_format.h"
#include "tailcast/storage/posix_inodes.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::posix {

// A look at the file is one of three:
//
//   the tag is this attachment's: the word counts
//       the known list is complete for it --------------------> known list, length of the word
//       otherwise: list the inodes ---------------------------> new list, length of the word
//   it is not: nobody appends as long as the tag stays
//       computed before under the same tag -------------------> as then
//       otherwise: list, recover from slots, tag again
//           the tag is another ------------------------------> look again
//           it is the same ----------------------------------> new list, recovered length
//
// The tag is read before the word, and the word before the list: each of them vouches for what is
// read after it. Any thread.
class Reader {
 public:
  Reader(const Context* context, FirstInode file);
  ~Reader();

  // The committed length, without waiting for the disk, if the word counts and is in memory;
  // nothing if Size has to be asked.
  bool FastSize(FileSize& size) const;
  // Blocks.
  Result<FileSize> Size();
  // DataLoss: of what is committed something is missing, because another program cut an inode or
  // removed it. Looks at no byte, and only if the word counts: recovery looks at bytes itself.
  // Blocks.
  Result<FileSize> CheckedSize();
  // Blocks. As ReadFile::Read.
  Result<std::string> Read(int64_t offset, int64_t length);

 private:
  struct View {
    CommitWord committed;
    std::shared_ptr<const Segments> segments;  // null if they were not wanted
  };
  // What is kept between looks.
  struct Known {
    std::shared_ptr<const Segments> segments;
    // What recovery computed from the slots while the tag was `old_tag`.
    uint64_t old_tag = 0;
    View old_view;
  };
  Result<View> Look(bool want_segments);
  // The word counts.
  Result<View> LookAtWord(const Known& known, bool want_segments);
  // The word is of an earlier attachment; nothing if somebody recovered the file meanwhile.
  Result<std::optional<View>> LookAtSlots(const Known& known, uint64_t tag, bool want_segments);
  void LogOldView(int64_t length, bool booted) const;
  Status CheckWhole();
  Status Missing(int64_t position, int64_t committed, const Segment& segment) const;

  const Context* const context_;
  const FirstInode file_;
  std::mutex mutex_;
  Known known_;  // guarded by mutex_
};

// Errors as Store::OpenRead. `folder` and `name` were checked by the caller.
Result<std::unique_ptr<Reader>> OpenRead(const Context& context, const std::string& folder,
                                         const std::string& name);

}  // namespace tailcast::storage::posix
