// The secret of a cell: who proves that he has it belongs to the cell, server or client
// (handshake.h). It comes from a file that only the cell's processes can read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"

namespace tailcast::fabric {

// Immutable; any thread. Its bytes are wiped when it is destroyed.
class CellKey {
 public:
  static constexpr size_t kBytes = 32;
  // HMAC-SHA-256.
  using Proof = std::array<char, 32>;

  explicit CellKey(const std::array<unsigned char, kBytes>& secret) : secret_(secret) {}
  ~CellKey();
  CellKey(const CellKey&) = delete;
  CellKey& operator=(const CellKey&) = delete;

  // Reads a key file: 64 hex digits, and white space at the end at most. The message names the file
  // and says what to do.
  //   NotFound: there is no such file. PermissionDenied: we may not read it, or too many may: others
  //   than its owner and group, or its group may write it. InvalidArgument: it holds no key.
  static Result<std::shared_ptr<const CellKey>> Load(const std::string& path);
  // Makes a key file that only its owner can read (mode 0600), durably, unless there is one
  // already.
  static Status Make(const std::string& path);

  Proof Sign(std::string_view text) const;
  // In a time that says nothing of where they differ.
  static bool Same(const Proof& a, const Proof& b);

 private:
  std::array<unsigned char, kBytes> secret_;
};

// Null: nobody asks, and nobody proves anything.
using SharedCellKey = std::shared_ptr<const CellKey>;

// What configurations, topologies and views say of a key: "none", or the path of its file. The
// errors are Load's.
inline constexpr std::string_view kNoCellKey = "none";
Result<SharedCellKey> LoadCellKey(const std::string& path_or_none);

// Bytes that nobody can guess; whoever draws as many never draws the same.
std::array<char, 32> RandomBytes();

}  // namespace tailcast::fabric
