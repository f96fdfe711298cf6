// The decisions of a primary operation at the writer (paper §2.4 Writers): bytes of both parts
// arrive in order and are appended one append per part at a time; index bytes only after the data
// bytes that they cover are committed, and only as whole valid records (design rule "committed
// first"; spec Fencing). A byte of a part:
//
//   OnBytes               NextAppend                  OnApplied
//   -------> waiting --------------------> appending -----------> committed
//              ^     not beyond the seal,
//              |     of the index whole records whose data is committed
//              +---- else it stays
//
// An example:
//
//   data  [0, 500) arrives  -> append data [0, 500)
//   index [0, 64) arrives: two records that cover data up to 500 -> waits
//   data append acknowledged -> append index [0, 64)
//
// A core: no clock, no I/O, one thread. Memory is what the caller lets in before it is committed
// (life_core.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/names.h"

namespace tailcast::writer {

struct PrimaryCopyOptions {
  int64_t append_bytes_max = 1 << 20;  // of one append
};

class PrimaryCopyCore {
 public:
  PrimaryCopyCore(PrimaryCopyOptions options, int64_t committed_data, int64_t committed_index);

  // Bytes that are committed already are ignored. Errors end the operation:
  //   InvalidArgument    a hole before `position`, or a bad position
  Status OnBytes(stream::Part part, int64_t position, std::string_view bytes);
  // Final lengths. InvalidArgument: the index would end inside a record, or they differ from those
  // told before, or the index is committed beyond.
  Status OnSeal(int64_t data_length, int64_t index_length);

  struct Append {
    int64_t offset = 0;
    std::string bytes;
  };
  // The append of this part that may start now, at most one at a time; to be answered by OnApplied.
  // DataLoss: an index record's checksum is wrong, or it goes back before the one before it.
  Result<std::optional<Append>> NextAppend(stream::Part part);
  // The append was committed.
  void OnApplied(stream::Part part);

  int64_t committed(stream::Part part) const { return parts_[static_cast<int>(part)].committed; }
  // Bytes that came and are not committed, of both parts.
  int64_t buffered_bytes() const;
  // Everything up to the seal is committed. Payload beyond the seal may be too: it has no index.
  bool done() const;

 private:
  struct PartState {
    int64_t committed = 0;
    int64_t appending = 0;  // bytes of the outstanding append
    std::string buffer;     // from committed + appending on
    size_t buffer_at = 0;   // consumed front of `buffer`
    int64_t end() const { return committed + appending + static_cast<int64_t>(waiting()); }
    size_t waiting() const { return buffer.size() - buffer_at; }
  };
  std::string TakeFront(PartState& part, size_t bytes);

  PrimaryCopyOptions options_;
  PartState parts_[stream::kParts];
  bool sealed_ = false;
  int64_t seal_[stream::kParts] = {0, 0};
  int64_t last_payload_end_ = 0;  // of the index records that were handed out
};

}  // namespace tailcast::writer
