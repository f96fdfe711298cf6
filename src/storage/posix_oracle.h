// For tests of the posix driver's steps: processes on the file system in memory, and what was
// promised to whom.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/storage/file_ops.h"
#include "tailcast/storage/memory_files.h"
#include "tailcast/storage/posix_file.h"

namespace tailcast::storage::posix {

inline constexpr char kFolder[] = "a/d";

// A process: its own view, its own context, and an optional hook before each call.
struct Process {
  Process(MemoryFiles& files, FileOpsHook hook = nullptr)
      : plain(files.OpenOps()), hooked(hook ? HookFileOps(plain.get(), std::move(hook)) : nullptr) {
    context.ops = hooked ? hooked.get() : plain.get();
  }
  std::unique_ptr<FileOps> plain;
  std::unique_ptr<FileOps> hooked;
  Context context;
};

// What was promised to somebody, and whether the file keeps it.
class Oracle {
 public:
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  const std::string& error() const { return error_; }

  // A piece that identifies itself: no two are equal, none contains another's mark.
  std::string MakePiece(Rng& rng) {
    std::string piece = "<" + std::to_string(next_piece_++) + ":";
    const uint64_t size = rng.Chance(0.3) ? rng.Below(1500) : rng.Below(40);
    for (uint64_t i = 0; i < size; ++i) piece.push_back(static_cast<char>('a' + rng.Below(26)));
    return piece + ">";
  }
  void Appended(int64_t offset, const std::string& piece, const AppendResult& result) {
    switch (result.outcome) {
      case AppendOutcome::kApplied:
        applied_[offset] = piece;
        size_told_ = std::max(size_told_, result.committed_length);
        if (result.committed_length != offset + static_cast<int64_t>(piece.size())) {
          Fail("an applied append reports another length");
        }
        break;
      case AppendOutcome::kFenced:
        refused_.push_back(piece);
        break;
      case AppendOutcome::kWrongOffset:
        Fail("wrong offset");
        break;
      case AppendOutcome::kUnknown:
        break;
    }
  }
  int64_t size_told() const { return size_told_; }
  // A size told by a call that began when `told_before` was known.
  void Sized(int64_t told_before, int64_t size) {
    if (size < told_before) {
      Fail("a size fell from " + std::to_string(told_before) + " to " + std::to_string(size));
    }
    size_told_ = std::max(size_told_, size);
  }
  // Bytes that a reader got.
  void Read(int64_t offset, const std::string& bytes) {
    const auto at = static_cast<size_t>(offset);
    if (at > shown_.size()) return;
    const size_t common = std::min(shown_.size() - at, bytes.size());
    if (shown_.compare(at, common, bytes, 0, common) != 0) Fail("bytes that were shown changed");
    if (at + bytes.size() > shown_.size()) shown_.append(bytes, common, std::string::npos);
    size_told_ = std::max(size_told_, offset + static_cast<int64_t>(bytes.size()));
  }
  // The whole file, read at rest.
  void Final(const std::string& content) {
    Sized(size_told_, static_cast<int64_t>(content.size()));
    if (content.substr(0, shown_.size()) != shown_) Fail("bytes that were shown changed");
    for (const auto& [offset, piece] : applied_) {
      const auto at = static_cast<size_t>(offset);
      if (at > content.size() || content.compare(at, piece.size(), piece) != 0) {
        Fail("an applied append is not where it was said to be");
      }
    }
    for (const std::string& piece : refused_) {
      if (content.find(piece) != std::string::npos) Fail("a refused append is there");
    }
    // Nothing but whole pieces.
    std::set<std::string> marks;
    for (size_t i = 0; i < content.size();) {
      const size_t colon = content.find(':', i);
      const size_t end = content.find('>', i);
      if (content[i] != '<' || colon == std::string::npos || end == std::string::npos ||
          colon > end) {
        return Fail("garbage or half an append at " + std::to_string(i));
      }
      for (size_t k = i + 1; k < end; ++k) {
        const char ch = content[k];
        if (!(k < colon ? ch >= '0' && ch <= '9' : k == colon || (ch >= 'a' && ch <= 'z'))) {
          return Fail("garbage at " + std::to_string(k));
        }
      }
      if (!marks.insert(content.substr(i, colon - i)).second) Fail("an append is there twice");
      i = end + 1;
    }
  }

 private:
  std::string error_;
  int next_piece_ = 0;
  std::map<int64_t, std::string> applied_;
  std::vector<std::string> refused_;
  std::string shown_;
  int64_t size_told_ = 0;
};

inline Result<std::string> ReadWhole(const Context& context, const std::string& name) {
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, OpenRead(context, kFolder, name));
  TAILCAST_ASSIGN_OR_RETURN(const FileSize size, reader->Size());
  std::string all;
  while (static_cast<int64_t>(all.size()) < size.committed_length) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string piece,
                              reader->Read(static_cast<int64_t>(all.size()), 1 << 20));
    if (piece.empty()) return DataLossError("a size was told that cannot be read");
    all += piece;
  }
  return all;
}

// Looks at the file twice, as readers do before and after somebody opens it for append.
inline void CheckAtRest(MemoryFiles& files, Oracle& oracle) {
  Process p(files);
  Result<std::string> content = ReadWhole(p.context, "f");
  if (!content.ok()) return oracle.Fail("not readable: " + content.status().ToString());
  oracle.Final(*content);
  oracle.Read(0, *content);
  Result<std::unique_ptr<Appender>> appender = OpenFencing(p.context, kFolder, "f");
  if (!appender.ok()) return oracle.Fail("not openable: " + appender.status().ToString());
  oracle.Sized(oracle.size_told(), (*appender)->committed_length());
  content = ReadWhole(p.context, "f");
  if (!content.ok()) return oracle.Fail("not readable: " + content.status().ToString());
  oracle.Final(*content);
}

}  // namespace tailcast::storage::posix
