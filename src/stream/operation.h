// An operation: the copy of one message file to one layer over one hop (paper §2.3). What
// schedulers, readers and writers say about it to each other (proto/copy.proto).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

// The numbers are those of the wire and of KeyMaker::Lock.
enum class Layer : uint8_t { kPrimary = 0, kCache = 1 };
inline constexpr int kLayers = 2;
std::string_view LayerName(Layer layer);  // "primary", "cache"

// Orders the operations on one file, layer and target: the greater supersedes (spec Locks). A
// re-route wins over any scheduler, a scheduler over its predecessors.
//
//   63         48 47                  24 23        0
//   | tree vers. | scheduler incarnation | attempt |
struct Term {
  uint32_t tree_version = 0;           // below 2^16
  uint32_t scheduler_incarnation = 0;  // below 2^24: the epoch of the registry's log
  uint32_t attempt = 0;                // below 2^24; 1, 2, ...

  uint64_t Pack() const;
  static Term Unpack(uint64_t packed);
  friend bool operator==(const Term&, const Term&) = default;
};
inline constexpr uint32_t kTreeVersionMax = (1u << 16) - 1;
inline constexpr uint32_t kSchedulerIncarnationMax = (1u << 24) - 1;
inline constexpr uint32_t kAttemptMax = (1u << 24) - 1;

// What is copied where; of each, at most one operation is meant to run.
struct OperationTarget {
  FileId file;
  Layer layer = Layer::kPrimary;
  std::string cell;  // downstream
  auto operator<=>(const OperationTarget&) const = default;
  std::string ToString() const;  // "flights/3#7 cache -> europe-west"
};

// An attempt at it.
struct OperationId {
  uint64_t term = 0;
  uint32_t nonce = 0;  // random
  auto operator<=>(const OperationId&) const = default;
};

struct Operation {
  OperationTarget target;
  OperationId id;
  std::string source_cell;
  int64_t chunk_size = 0;  // bytes
  std::string writer_name;
  std::string writer_address;  // host:port
  std::string writer_via;      // HTTP CONNECT proxy, or empty
  // Nothing of it is believed to be downstream: the reader starts without waiting for an answer.
  bool fresh = false;
  std::optional<int64_t> seal[kParts];  // final lengths, both or none

  bool sealed() const { return seal[0].has_value(); }
};

// Bytes of each part that a reader may send before the writer named its window.
inline constexpr int64_t kInitialWindowBytes = 256 << 10;

inline constexpr int64_t kChunkSizeMin = 512;
inline constexpr int64_t kChunkSizeMax = 64 << 10;

void ToProto(const Operation& operation, v1::Operation* out);
// Checks every field. InvalidArgument names the bad one.
Result<Operation> FromProto(const v1::Operation& in);

// The owner field of an operation's lock: who of all writers, and which of its operations.
uint64_t LockOwner(std::string_view writer_name, uint32_t nonce);

// InvalidArgument unless it is 1 to 63 of [a-z0-9-]. `what` names the field.
Status ValidateCellName(std::string_view name, std::string_view what);

}  // namespace tailcast::stream
