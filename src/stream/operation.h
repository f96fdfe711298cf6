// An operation: the copy of one message file to one layer over one hop (paper §2.3). What
// schedulers, readers and writers say about it to each other (proto/copy.proto).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/strong.h"
#include "tailcast/base/time.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::stream {

// The numbers are those of the wire and of KeyMaker::Lock.
enum class Layer : uint8_t { kPrimary = 0, kCache = 1 };
inline constexpr int kLayers = 2;
std::string_view LayerName(Layer layer);  // "primary", "cache"

// What is copied where; of each, at most one operation is meant to run.
struct OperationTarget {
  FileId file;
  Layer layer = Layer::kPrimary;
  std::string cell;  // downstream
  auto operator<=>(const OperationTarget&) const = default;
  std::string ToString() const;  // "flights/3#7 cache -> europe-west"
};

// Drawn for each operation: tells two of one term apart.
enum class Nonce : uint32_t {};

// An attempt at it.
struct OperationId {
  Term term;
  Nonce nonce{};
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
  // The reader gives it up when there is something to do and nothing goes on for so long; before it
  // got on for the first time, what failed before it counts.
  Duration stuck_after = Duration::Infinite();
  Duration stuck_at_first = Duration::Infinite();

  bool sealed() const { return seal[0].has_value(); }
};

// Bytes of each part that a reader may send before the writer named its window.
inline constexpr int64_t kInitialWindowBytes = 256 << 10;

// Of messages with the fields term and nonce. Not validated.
template <typename Message>
OperationId OperationIdOf(const Message& message) {
  return {Term::Unpack(message.term()), Nonce{message.nonce()}};
}
template <typename Message>
void SetOperationId(const OperationId& id, Message* out) {
  out->set_term(id.term.Pack());
  out->set_nonce(Raw(id.nonce));
}

void ToProto(const Operation& operation, v1::Operation* out);
// Checks every field. InvalidArgument names the bad one.
Result<Operation> FromProto(const v1::Operation& in);

// The owner field of an operation's lock: who of all writers, and which of its operations.
uint64_t LockOwner(std::string_view writer_name, Nonce nonce);

// InvalidArgument unless it is 1 to 63 of [a-z0-9-]. `what` names the field.
Status ValidateCellName(std::string_view name, std::string_view what);

}  // namespace tailcast::stream
