// A path that grows: what is new in the file that has this name, and in those that had it before,
// through rotation by rename, truncation (of a file that was copied before: "copytruncate"), and
// its going and coming back.
//
//   app.log.2   rotated, read to its end, open as long as somebody may write to it
//   app.log.1   rotated: read first
//   app.log     current: read when the others have nothing more
//
// A file is known by device, inode and the bytes before the place up to which it was read
// (FileMark); its name only says where to look. What was rotated or copied while nobody looked is
// found among the files beside it. What can't be found is told with its size.
//
// Last lines without a newline are waited for in the current file. In one that lost its name they
// are taken when it was quiet for `rotated_wait`; nobody ends them any more.
//
// Decides, and asks a FileSystem. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/app/file_system.h"
#include "tailcast/app/tail_ledger.h"
#include "tailcast/base/time.h"

namespace tailcast::app {

class FollowedPath {
 public:
  struct Options {
    int64_t message_bytes_max = 16 << 20;  // a longer line is cut
    Duration rotated_wait = Duration::Seconds(5);
    bool from_end = false;  // where a file begins of which nothing is known at the start
    std::set<std::string> others = {};  // beside it, and never what it was rotated to
  };
  // Bytes of one file, in order: whole lines. Only the last one may have no newline: it was cut, or
  // nobody will end it.
  struct Piece {
    FilePlace from, to;
    std::string bytes;
  };

  // `say` gets one line for people at a time. `files` outlives this.
  FollowedPath(FileSystem& files, std::string path, Options options,
               std::function<void(const std::string&)> say);

  // Whether the file has `message` right before the place; nullopt: it is not found, or is another
  // one by now.
  static std::optional<bool> EndsWith(FileSystem& files, const FilePlace& place,
                                      std::string_view message);

  // Why such a one is not followed: InvalidArgument.
  static Status NoRegularFile(const std::string& path);

  // Where files stand that had this path before; once. InvalidArgument: it is no regular file.
  Status Begin(const std::vector<FilePlace>& known, MonotonicTime now);
  // Is it the same file still? Now and then.
  void Look(MonotonicTime now);
  // What is there and was not given yet; nullopt: nothing at the moment.
  std::optional<Piece> Read(MonotonicTime now);

  // Enters the piece that was read last, before the next Look or Read, and where the path's other
  // files stood by then; without a piece where all of them stand. True: the ledger's runs are to be
  // kept before the piece is published.
  bool Enter(TailLedger& ledger, const std::optional<Piece>& piece);

  // Where the open files stand.
  std::vector<FilePlace> Places() const;
  // Nothing waits to be given but perhaps an unfinished line of the current file, or a file that is
  // not there; what can't be read does.
  bool idle() const;
  // Of that line.
  int64_t unfinished_bytes() const;
  const std::string& path() const { return path_; }

 private:
  struct Open {
    std::unique_ptr<OpenedFile> file;
    FilePlace place;
    bool current = false;
    bool checked = false;  // nothing has changed since its bytes were compared with the mark
    FileInfo info;         // when it was looked at last
    MonotonicTime quiet_since;
    int64_t unfinished = 0;  // bytes behind the place that are no whole line
  };

  void TryBegin(MonotonicTime now);
  Status FindKnown(MonotonicTime now);
  static Status GoToEnd(Open& open);
  Result<Open> OpenAt(const std::string& path, FilePlace place, MonotonicTime now);
  Result<std::optional<Open>> Find(const FilePlace& place, bool here, MonotonicTime now);
  Result<std::optional<Open>> FindCopy(const FilePlace& place, MonotonicTime now);
  Result<std::vector<Open>> FindNewer(int64_t than_ns, MonotonicTime now);
  Result<std::vector<std::string>> Rotated() const;
  Result<bool> Knows(const std::string& path, const FileInfo& info) const;
  static void Remark(Open& open);
  // An error: it can't be told.
  static Result<bool> IsMarked(OpenedFile& file, const FilePlace& place);
  Open* Current();
  Status Rotate(MonotonicTime now);
  enum class State : uint8_t { kReadable, kUnreadable, kTruncated };
  static bool HasChanged(Open& open);
  // Truncated: it begins anew, and its copy, if there is one, stands before it now.
  State Check(Open& open, MonotonicTime now);
  // An error: nothing has changed, and it is to be tried again.
  Status OnTruncated(const FileKey& key, MonotonicTime now);
  std::optional<Piece> ReadOf(Open& open, MonotonicTime now);
  void CloseOld(MonotonicTime now);
  void Close(const FileKey& key);
  void Trouble(const Status& why);
  void ReadTrouble(const std::string& text);
  void SayLost(const FilePlace& place, const std::string& why);

  FileSystem& files_;
  const std::string path_;
  const Options options_;
  const std::function<void(const std::string&)> say_;
  std::deque<Open> open_;         // the oldest first
  std::vector<FilePlace> known_;  // at the start, but for those that were closed since
  std::vector<FileKey> closed_;
  bool begun_ = false;  // what was known at the start is open or gone
  std::string trouble_, read_trouble_, copy_trouble_;  // what was said last, and is so still
  bool not_there_ = false;                             // that is trouble_
  bool unreadable_ = false;                            // some file, in the last Read
};

}  // namespace tailcast::app
