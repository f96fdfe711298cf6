// The inodes of a file, open: making, opening and listing them, and the shared word of the first
// one. Which inode is what, and which of them has a position, is decided here; what they are used
// for is not. Internal to the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_format.h"

namespace tailcast::storage::posix {

// One inode of a file, open.
struct Segment {
  Header header;
  std::shared_ptr<OpsFile> file;
};

// All inodes of a file that a reader or a recovery found.
struct Segments {
  std::vector<Segment> by_epoch;  // ascending; the first inode is always there

  // Notes the word as it was before this list was made.
  void MarkListedAt(CommitWord word);
  // Whether no inode is missing that a reader of this word needs: the list has the segment of the
  // word's epoch, or it was made when the word already had that length (the epoch's owner may not
  // have made its segment yet, and then has not appended). Never before MarkListedAt.
  bool CompleteFor(CommitWord word) const;

 private:
  CommitWord listed_at_;
  bool has_epoch_ = false;  // the segment of listed_at_.epoch is among them
};

// The longest piece of [offset, end) that lies in one inode.
struct Piece {
  size_t segment = 0;  // index in Segments::by_epoch
  int64_t stop = 0;    // the piece is [offset, stop)
};
// Position p is in the segment of the highest epoch whose start is at most p: so bytes that an
// overtaken writer puts behind a later segment's start are never seen. 0 <= offset < end.
Piece PieceAt(const Segments& segments, int64_t offset, int64_t end);

// A file that is open: where it is, and its first inode, whose page holds the commit word.
struct FirstInode {
  std::string folder;
  std::string name;
  Header header;
  std::shared_ptr<OpsFile> file;
  std::shared_ptr<SharedPage> page;
};

// Whether the word counts: its tag is that of this attachment. Read before the word.
bool WordCounts(const Context& c, SharedPage& page);
CommitWord LoadWord(SharedPage& page);
bool SwapWord(SharedPage& page, CommitWord from, CommitWord to);
bool IsDeleted(SharedPage& page);
// Raises the epoch, to which nobody has a right: every earlier handle is fenced.
void FenceForEver(SharedPage& page);
// What to say when SharedPage::lost. DataLoss: the file is cut. Unavailable: I/O.
Status PageLost(const FirstInode& file);

// The first page of an inode. DataLoss: it is cut.
Result<std::string> ReadFirstPage(OpsFile& file, const std::string& path);
// DataLoss: what is there is no inode of a file.
Result<Header> ReadHeader(OpsFile& file, const std::string& path);
// The inode that `entry`, a name or a claim, names, mapped. NotFound, DataLoss.
Result<FirstInode> OpenFirstInode(const Context& c, const std::string& folder,
                                  const std::string& entry, bool writable);
// A new inode with its first page, flushed, without a name. NotFound: no such folder.
Result<std::unique_ptr<OpsFile>> MakeInode(const Context& c, const std::string& folder,
                                           const Header& header);
// Names in the folder that segments of the file may have, without its own: at least all that are
// there and were made before the look at the word or its tag that comes before this call. Lists
// the folder only if the word does not count, and then once for all its files: whoever makes a
// segment has made the word count before, so a list of this attachment has all those of files whose
// word does not.
Result<std::vector<std::string>> SegmentNames(const Context& c, const FirstInode& file);
// All inodes of the file. `known`: a list from before, whose open inodes are used again, or null.
// NotFound: the file was deleted.
Result<std::shared_ptr<Segments>> ListSegments(const Context& c, const FirstInode& file,
                                               const Segments* known);

}  // namespace tailcast::storage::posix
