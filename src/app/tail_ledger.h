// What `tailcast tail` knows of where the bytes of a shard came from, so that it goes on exactly
// where its stream ends after any end of its own (kill -9, too): nothing twice, nothing left out.
//
// Messages are lines with their newline, so the shard's bytes are the files' bytes, piece after
// piece. The state that is kept is a list of runs:
//
//   from shard byte 0      on: file A from byte 0
//   from shard byte 7300   on: file B from byte 0
//   from shard byte 8100   on: file A from byte 7300
//
// A run is durable before its first byte is published, and ends where the next one begins. So
// wherever the stream turns out to end, the list says up to where each file is in it, whatever was
// acknowledged to whom. What was acknowledged makes the list shorter, no more.
//
// Cores: no I/O, one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/stream/names.h"

namespace tailcast::app {

// The last bytes before a place in a file (its first ones, where nothing was read of it): what
// tells it from another file that has taken its name or its inode, from itself after it was
// truncated and has grown again, and from nothing else than a copy of itself.
struct FileMark {
  static constexpr int64_t kBytesMax = 256;
  int64_t end = 0;    // the place, bytes
  int64_t bytes = 0;  // before it, at most kBytesMax, that `crc` covers
  uint32_t crc = 0;   // crc32c

  // Of `before`: bytes that end at `end`, the last kBytesMax of them or all there are.
  static FileMark Of(int64_t end, std::string_view before);
  int64_t begin() const { return end - bytes; }
  friend bool operator==(const FileMark&, const FileMark&) = default;
};

// Which file, whatever its name is by now.
struct FileKey {
  std::string path;  // as it was named to follow, absolute
  uint64_t device = 0, inode = 0;
  auto operator<=>(const FileKey&) const = default;
};

// How far a file is in the stream.
struct FilePlace {
  FileKey key;
  int64_t offset = 0;  // bytes before it are in the stream
  FileMark mark;       // at the offset or before it; behind it where that is 0
  int64_t seen = 0;    // how long the file was when that was looked at last
  friend bool operator==(const FilePlace&, const FilePlace&) = default;
};

// From this byte of the shard on it is `place.key` from `place.offset` on.
struct TailRun {
  int64_t byte = 0;
  FilePlace place;
  friend bool operator==(const TailRun&, const TailRun&) = default;
};

// The runs of one shard.
class TailLedger {
 public:
  // The shard ends at `end`, which was made of `runs`, in their order. DataLoss: it is shorter than
  // they say, or they say of a file what none can be.
  static Result<TailLedger> Recover(const std::vector<TailRun>& runs, int64_t end);

  int64_t end() const { return end_; }
  // How far each file is, without order.
  std::vector<FilePlace> Places() const;
  // Which the last bytes of the shard are of, if the runs that were recovered say so, and it stands
  // behind them: it does not any more where it was truncated since.
  const std::optional<FileKey>& last() const { return last_; }

  // Bytes of a file are going to be published: from `from` to `to`. True: not before runs() is
  // durable.
  bool Add(const FilePlace& from, const FilePlace& to);
  // The shard is durable up to this byte. True: runs() may be shorter now.
  bool OnDurable(int64_t byte);
  // Where a file stands of which nothing is published: it begins, or its mark or length is another
  // one. True: a file or place that is new, so runs() is to be kept; nothing waits for that.
  bool Observe(const FilePlace& place);
  // The file will not be read any more.
  void Forget(const FileKey& key);

  // What is to be kept.
  std::vector<TailRun> runs() const;

 private:
  struct Piece {
    int64_t end = 0;  // in the shard
    FilePlace from, to;
  };
  int64_t settled_ = 0;                  // durable, and in places_
  int64_t end_ = 0;                      // of what was added
  std::map<FileKey, FilePlace> places_;  // at settled_
  std::optional<FileKey> last_;          // of the byte before settled_
  std::deque<Piece> pieces_;             // from settled_ to end_
  std::set<FileKey> forgotten_;          // of pieces_
  bool unsaved_ = false;                 // the last piece is an observation, perhaps not kept
};

// The file in which they are kept.
struct TailState {
  stream::StreamIncarnation incarnation = stream::StreamIncarnation::kNone;
  std::map<int32_t, std::vector<TailRun>> shards;

  std::string ToText() const;
  // DataLoss that names the line: it is no such file, or it was changed.
  static Result<TailState> Parse(std::string_view text);
};

}  // namespace tailcast::app
