// The binary formats of stream: index records, headers, metadata of pairs, locks, terms.
#include <cstring>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/strong.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/lock.h"
#include "tailcast/stream/message_headers.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::stream {
namespace {

enum class Kind : uint8_t { kIndexRecord, kMetadata, kLock, kHeaders };
constexpr uint8_t kKinds = 4;
Kind KindOf(uint8_t byte) { return static_cast<Kind>(byte % kKinds); }

void TryIndexRecord(std::string_view bytes) {
  if (bytes.size() < kIndexRecordSize) return;
  bytes = bytes.substr(0, kIndexRecordSize);
  const auto record = IndexRecord::Decode(bytes.data());
  if (!record) return;
  TAILCAST_CHECK(record->offset >= 0 && record->end() >= record->offset, "an impossible range");
  TAILCAST_CHECK(record->headers_length <= record->length, "more headers than message");
  uint32_t check = 0;
  std::memcpy(&check, bytes.data() + 28, 4);
  TAILCAST_CHECK(check == Crc32c(bytes.substr(0, 28)), "a wrong checksum was taken");
  std::string again;
  record->AppendTo(again);
  TAILCAST_CHECK(again == bytes, "a record that decodes encodes to the same bytes");
}

void TryHeaders(std::string_view bytes) {
  const auto headers = Headers::Decode(bytes);
  if (!headers) return;
  const std::vector<Header> each(headers->begin(), headers->end());
  const auto again = Headers::Encode(each);
  TAILCAST_CHECK(again.ok() && *again == bytes, "headers that decode encode to the same bytes");
  TAILCAST_CHECK(each.empty() == bytes.empty());
  for (const Header& header : each) {
    TAILCAST_CHECK(headers->Find(header.name).has_value(), "a header that is there is found");
  }
}

void TryMetadata(int64_t seq, std::string_view bytes) {
  const PairMetadata metadata = DecodePairMetadata(seq, bytes);
  const int64_t fields[] = {
      metadata.start_byte,          metadata.start_number,        metadata.cache_length[0],
      metadata.cache_length[1],     metadata.primary_length[0],   metadata.primary_length[1],
      metadata.seal[0].value_or(0), metadata.seal[1].value_or(0), metadata.heartbeat_us,
      metadata.chunk_size,          metadata.created_us};
  for (const int64_t field : fields) {
    TAILCAST_CHECK(field >= 0 && field <= int64_t{1} << 56, "a field that nobody writes was taken");
  }
  if (seq <= 0) {
    TAILCAST_CHECK(metadata == PairMetadata(), "there is no such file");
    return;
  }
  const std::string encoded = EncodePairMetadata(seq, metadata);
  TAILCAST_CHECK(DecodePairMetadata(seq, encoded) == metadata, "it decodes to what was encoded");
  TAILCAST_CHECK(Merge(metadata, metadata) == metadata, "a merge is idempotent");
  TAILCAST_CHECK(Merge(PairMetadata(), metadata) == metadata, "nothing is the least of all");
}

void TryLock(std::string_view bytes, std::string_view other) {
  const auto lock = DecodeLock(bytes);
  if (!lock) return;
  TAILCAST_CHECK(lock->state >= LockState::kHeld && lock->state <= LockState::kReleased,
                 "no state");
  TAILCAST_CHECK(EncodeLock(*lock) == bytes, "a lock that decodes encodes to the same bytes");
  const auto second = DecodeLock(other);
  if (!second) return;
  TAILCAST_CHECK((*lock < *second) == (bytes < other), "byte order is the order of locks");
}

}  // namespace
}  // namespace tailcast::stream

using namespace tailcast;          // NOLINT(google-build-using-namespace): a program of its own
using namespace tailcast::stream;  // NOLINT(google-build-using-namespace)

// Kind, then the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  switch (KindOf(input.Take<uint8_t>())) {
    case Kind::kIndexRecord:
      TryIndexRecord(input.Rest());
      break;
    case Kind::kMetadata: {
      const auto seq = input.Take<int64_t>();
      TryMetadata(seq, input.Rest());
      break;
    }
    case Kind::kLock: {
      const std::string_view lock = input.Bytes(24);
      TryLock(lock, input.Rest());
      break;
    }
    case Kind::kHeaders:
      TryHeaders(input.Rest());
      break;
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  return fuzz::MutateAndRepair(data, size, size_max, seed, [](uint8_t* bytes, size_t count) {
    if (count < 1 + kIndexRecordSize || KindOf(bytes[0]) != Kind::kIndexRecord) return;
    const std::string_view covered(reinterpret_cast<const char*>(bytes + 1), 28);
    fuzz::StoreAt(bytes, 1 + 28, Crc32c(covered));
  });
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  std::string record(1, '\0');
  IndexRecord{.offset = 4711,
              .length = 120,
              .crc = 0x12345678,
              .time_us = 1763722199123456,
              .headers_length = 20}
      .AppendTo(record);
  std::vector<std::string> seeds = {record};
  for (const int64_t seq : {1, 7, 8}) {
    PairMetadata metadata;
    metadata.created_us = 1763722199123456;
    metadata.start_byte = 1000;
    metadata.start_number = 10;
    metadata.cache_length[0] = metadata.primary_length[0] = 640;
    metadata.cache_length[1] = metadata.primary_length[1] = 64;
    metadata.primary_epoch = storage::Epoch{3};
    metadata.heartbeat_us = 1763722199223456;
    metadata.chunk_size = 4096;
    if (seq == 7) metadata.seal[0] = 640, metadata.seal[1] = 64;
    std::string seed(1, '\1');
    Append(seed, seq);
    seeds.push_back(seed + EncodePairMetadata(seq, metadata));
  }
  const LockValue held = {.term = Term{TreeVersion{1}, SchedulerIncarnation{7}, 2}, .owner = 99};
  LockValue released = held;
  released.state = LockState::kReleased;
  seeds.push_back("\2" + EncodeLock(held) + EncodeLock(released));
  const std::vector<Header> headers = {{"trace", "7f3a"}, {"e", ""}, {"trace", "\xff"}};
  seeds.push_back("\3" + *Headers::Encode(headers));
  return seeds;
}
