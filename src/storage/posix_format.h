// Layout and decisions of the posix primary file, apart from system calls. The drawing with offsets
// and the reasons are in docs/formats/primary_posix.md; the proof is tla/Fencing.tla.
//
// A file `NAME` is one inode per epoch that ever owned it: NAME itself (epoch 1) and hidden
// segments `.NAME.<file id>.e<epoch>` in the same folder. Each inode is one page of 4096 bytes,
// then raw bytes:
//
//   0     header sector   who this is; never changes
//   512   live sector     commit word, attach tag: shared memory of all processes; first inode only
//   1024  slot 0          the length as a power loss leaves it; slots take turns
//   1536  slot 1
//   2048  tombstone       the file is deleted; first inode only
//   4096  bytes           of positions start, start + 1, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/strong.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::posix {

inline constexpr int64_t kPageBytes = 4096;
inline constexpr int64_t kSectorBytes = 512;
inline constexpr int64_t kLiveOffset = 512;
inline constexpr int64_t kSlotOffsets[2] = {1024, 1536};
inline constexpr int64_t kTombstoneOffset = 2048;
inline constexpr int64_t kDataOffset = kPageBytes;
inline constexpr uint32_t kFormatVersion = 1;

// Words of the page that processes share, as offsets in bytes.
inline constexpr int64_t kWordOffset = kLiveOffset;  // CommitWord
inline constexpr int64_t kAttachTagOffset =
    kLiveOffset + 8;  // of the attachment in which it counts
inline constexpr int64_t kLiveMagicOffset = kLiveOffset + 16;
inline constexpr int64_t kBootTagOffset = kLiveOffset + 24;  // in which files without flushes count
inline constexpr uint64_t kLiveMagic = 0x6576696c2d434154;   // "TAC-live"
inline constexpr uint64_t kTombstoneMagic = 0x656e6f672d434154;  // "TAC-gone"

// Epoch and committed length in one word, so that one compare-and-swap commits or fences.
inline constexpr int kLengthBits = 40;
inline constexpr int64_t kLengthMax = (int64_t{1} << kLengthBits) - 1;  // 1 TiB
inline constexpr Epoch kEpochMax{(uint64_t{1} << 24) - 1};              // takeovers of one file
struct CommitWord {
  Epoch epoch = Epoch::kNone;
  int64_t length = 0;
  bool operator==(const CommitWord&) const = default;
};
inline uint64_t Pack(CommitWord w) {
  return Raw(w.epoch) << kLengthBits | static_cast<uint64_t>(w.length);
}
inline CommitWord Unpack(uint64_t raw) {
  return {Epoch{raw >> kLengthBits}, static_cast<int64_t>(raw & static_cast<uint64_t>(kLengthMax))};
}

enum class Durability : uint8_t {
  kDurable,    // an acknowledged append survives kill -9 and power loss: one fdatasync each
  kPageCache,  // it survives kill -9 only: after a restart of the machine the file is DataLoss,
               // after its device was attached anew it may end earlier
};

// Who an inode is.
struct Header {
  uint64_t file_id = 0;  // random; the same in all inodes of one file, another in a file recreated
  Epoch epoch = Epoch::kFirst;  // the only epoch that appends here
  int64_t start = 0;            // position of the first byte
  bool unflushed = false;       // written without flushes: worthless after a power loss
  std::string name;
  std::string key;
  bool operator==(const Header&) const = default;
};
// When the live sector's word counts: FileOps::AttachTag and BootTag.
struct LifeTags {
  uint64_t attach = 0;
  uint64_t boot = 0;
};
// The first page of a new inode. `word` and `tags` matter in the first inode only.
std::string EncodePage(const Header& header, CommitWord word, LifeTags tags);
// DataLoss: not such a page, another version, or damaged; the message says which.
Result<Header> DecodeHeader(std::string_view page);
bool HasTombstone(std::string_view page);
std::string EncodeTombstone(uint64_t file_id);

// What an append leaves for a power loss: the length with it, and a checksum of its bytes, so that
// a slot whose bytes did not all reach the disk is known.
struct Slot {
  uint64_t file_id = 0;
  Epoch epoch = Epoch::kNone;
  int64_t length = 0;       // committed length with this append
  int64_t range_start = 0;  // it wrote positions [range_start, length)
  uint32_t range_crc = 0;   // crc32c of them
  bool operator==(const Slot&) const = default;
};
std::string EncodeSlot(const Slot& slot);
// Nothing if the sector is empty, torn or of another file or epoch.
std::optional<Slot> DecodeSlot(std::string_view sector, const Header& header);
// The slots of a page that can be true, newest first.
std::vector<Slot> SlotsOf(std::string_view page, const Header& header);

// `.claim-<key>`: holds the key for whoever linked it.
std::string ClaimName(std::string_view key);
// `.<name>.<file id, 16 hex>.e<epoch>`; the name itself for epoch 1. With the id, what a deleted
// file of the same name left behind is nobody else's.
std::string SegmentName(std::string_view name, uint64_t file_id, Epoch epoch);
// What the names of all segments of a file begin with.
std::string SegmentPrefix(std::string_view name, uint64_t file_id);
// False only for names that are no file's segment.
bool MayBeSegment(std::string_view entry);
// Whether `entry` is the segment of some file that has or had this name.
bool IsSegmentOf(std::string_view entry, std::string_view name);
bool IsClaim(std::string_view entry);
// The epoch, if `entry` is a segment of this file (epoch 2 or more).
std::optional<Epoch> ParseSegmentName(std::string_view entry, std::string_view name,
                                      uint64_t file_id);

}  // namespace tailcast::storage::posix
