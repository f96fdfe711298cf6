// The read of one key from memory that holds anything. Each request of the core is answered with
// bytes of the input, in blocks of exactly the size that was asked for.
#include "tailcast/cache/key_read_core.h"

#include <cstring>
#include <memory>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cache {
namespace {

constexpr Key kKey = {0x1122334455667788, 0x99aabbccddeeff00};
constexpr uint32_t kCapacityMax = 512;
// Begins each input.
struct Shape {
  uint8_t of_chunk;     // odd: a chunk, else a value
  uint8_t remembered;   // odd: the location below is remembered
  uint8_t with_bucket;  // odd: and the bucket is read with it
  uint8_t repair;       // bits: which checksums of the answers are made right
  uint16_t have, want, capacity, room;
  layout::Location location;
};

// A copy of a piece of the server's memory.
using Block = std::unique_ptr<char[]>;
Block TakeBlock(fuzz::Input& input, size_t size) {
  Block block(new char[size]());
  const std::string_view bytes = input.Bytes(size);
  std::memcpy(block.get(), bytes.data(), bytes.size());
  return block;
}

class Reading {
 public:
  explicit Reading(fuzz::Input& input) : input_(input) {
    const std::string_view bytes = input.Bytes(sizeof(Shape));
    std::memcpy(&shape_, bytes.data(), bytes.size());
    chunk_.key = kKey;
    chunk_.have = shape_.have % kCapacityMax;
    chunk_.want = chunk_.have + 1 + shape_.want % (kCapacityMax - chunk_.have);
    chunk_.capacity = chunk_.want + shape_.capacity % (kCapacityMax - chunk_.want + 1);
    before_ = std::string(chunk_.have, 'p');
    destination_ = Block(new char[chunk_.capacity]());
    std::memcpy(destination_.get(), before_.data(), before_.size());
    chunk_.destination = destination_.get();
    chunk_.crc = Crc32c(before_);
  }

  void Run() {
    const bool of_chunk = shape_.of_chunk % 2 != 0;
    const uint32_t room =
        chunk_.capacity + shape_.room % (layout::kValueBytesMax - chunk_.capacity + 1);
    KeyReadCore core =
        of_chunk ? KeyReadCore(geometry_, 2, &chunk_, room) : KeyReadCore(geometry_, 2, kKey);
    const bool remembered = shape_.remembered % 2 != 0;
    core.Start(remembered ? &shape_.location : nullptr,
               shape_.with_bucket % 2 != 0 || !of_chunk || !remembered);
    // Each time that a bucket is read leads to 7 entries at most, each of two reads.
    for (int steps = 0; !core.done(); ++steps) {
      TAILCAST_CHECK(steps < 64, "the read does not end");
      Answer(core);
    }
    Judge(core, of_chunk);
  }

 private:
  // What a driver does: memory that the request did not name stays as it was.
  void Answer(KeyReadCore& core) {
    const KeyReadCore::Request& request = core.request();
    TAILCAST_CHECK(request.from <= request.to && request.to <= layout::kValueBytesMax);
    if (request.bucket) {
      TAILCAST_CHECK(core.bucket_offset() + layout::kBucketBytes <= geometry_.index_bytes(),
                     "a bucket outside of the index");
      bucket_ = TakeBlock(input_, layout::kBucketBytes);
      if ((shape_.repair & 1) != 0) {
        const uint32_t crc = layout::BucketCrc(bucket_.get());
        std::memcpy(bucket_.get() + 12, &crc, 4);
      }
    }
    if (request.header || request.to > request.from) {
      // Who has more than the entry asks for its header alone.
      const uint64_t end = request.to > request.from ? request.to : 0;
      TAILCAST_CHECK(request.entry <= geometry_.data_bytes &&
                         layout::kEntryHeaderBytes + end <= geometry_.data_bytes - request.entry,
                     "bytes outside of the data");
    }
    if (request.header) header_ = TakeBlock(input_, layout::kEntryHeaderBytes);
    if (request.header || request.to > request.from) {
      // In other memory if there is no room for what is asked for: the driver's move.
      Block payload(new char[request.to - core.from()]());
      const uint32_t kept = request.from - core.from();
      if (kept > 0) std::memcpy(payload.get(), payload_.get(), kept);
      const std::string_view bytes = input_.Bytes(request.to - request.from);
      std::memcpy(payload.get() + kept, bytes.data(), bytes.size());
      payload_ = std::move(payload);
      payload_size_ = request.to - core.from();
    }
    if (request.header && (shape_.repair & 2) != 0) RepairHeader(core);
    core.OnRead({bucket_.get(), header_.get(), payload_.get()});
  }

  void RepairHeader(const KeyReadCore& core) {
    char* const header = header_.get();
    const uint64_t key[] = {kKey.hi, kKey.lo};
    std::memcpy(header, key, 16);
    std::memcpy(header + 40, &geometry_.generation, 8);
    const uint32_t length = layout::LoadHalf(header + 24);
    if ((shape_.repair & 4) != 0 && length >= core.from() &&
        length - core.from() <= payload_size_) {
      const uint32_t before = core.from() == 0 ? 0 : chunk_.crc;
      const uint32_t crc = Crc32cExtend(before, payload_.get(), length - core.from());
      std::memcpy(header + 28, &crc, 4);
    }
    const uint32_t crc = Crc32cExtend(0, header, 56);
    std::memcpy(header + 56, &crc, 4);
  }

  void Judge(const KeyReadCore& core, bool of_chunk) {
    const KeyAnswer& answer = core.answer();
    TAILCAST_CHECK(std::string_view(destination_.get(), chunk_.have) == before_,
                   "what was there is not touched");
    if (answer.outcome != KeyOutcome::kFound) {
      TAILCAST_CHECK(!of_chunk || chunk_.length <= chunk_.capacity);
    }
    if (of_chunk && chunk_.length > chunk_.have) {
      TAILCAST_CHECK(chunk_.length <= chunk_.capacity, "more than there is room for");
      TAILCAST_CHECK(Crc32c({destination_.get(), chunk_.length}) == chunk_.crc,
                     "the checksum is that of the bytes");
    }
    if (answer.outcome != KeyOutcome::kFound) return;
    TAILCAST_CHECK(answer.length <= layout::kValueBytesMax);
    // By the format alone: the header that was read last names this key, and its checksums hold.
    layout::EntryHeader header;
    TAILCAST_CHECK(layout::ParseEntryHeader(header_.get(), kKey, geometry_.generation, header) &&
                       header.length == answer.length,
                   "an entry was taken that is none");
    if (answer.length <= core.from()) return;
    TAILCAST_CHECK(answer.length - core.from() <= payload_size_, "bytes that were not read");
    if (of_chunk) return;  // the chunk's own checksum was looked at above
    TAILCAST_CHECK(Crc32c({payload_.get(), answer.length}) == header.payload_crc,
                   "bytes were taken that do not match");
  }

  fuzz::Input& input_;
  const layout::Geometry geometry_ = {.generation = layout::Generation{77},
                                      .bucket_count = 64,
                                      .data_bytes = 4 * layout::kSlabBytes,
                                      .heartbeat_interval_us = 100'000};
  Shape shape_ = {};
  ChunkRead chunk_;
  std::string before_;
  Block destination_, bucket_, header_, payload_;
  uint32_t payload_size_ = 0;
};

}  // namespace
}  // namespace tailcast::cache

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fuzz::Input input(data, size);
  tailcast::cache::Reading(input).Run();
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::cache;  // NOLINT(google-build-using-namespace)
  std::string bucket(layout::kBucketBytes, '\0');
  for (const size_t way : {0, 3}) {
    const uint64_t entry[] = {layout::TagOf(kKey), layout::PackLocation({4096, 300})};
    bucket.replace(16 + 16 * way, 16, reinterpret_cast<const char*>(entry), 16);
  }
  const uint32_t crc = layout::BucketCrc(bucket.data());
  bucket.replace(12, 4, reinterpret_cast<const char*>(&crc), 4);
  const std::string value = std::string(10, 'p') + std::string(290, 'v');
  char header[layout::kEntryHeaderBytes];
  layout::FormatEntryHeader({.key = kKey,
                             .length = 300,
                             .payload_crc = Crc32c(value),
                             .generation = layout::Generation{77}},
                            header);
  const std::string entry(header, sizeof header);
  std::vector<std::string> seeds;
  for (const uint8_t of_chunk : {0, 1}) {
    for (const uint8_t remembered : {0, 1}) {
      const Shape shape = {.of_chunk = of_chunk,
                           .remembered = remembered,
                           .with_bucket = 1,
                           .repair = 7,
                           .have = static_cast<uint16_t>(of_chunk * 10),
                           .want = 200,
                           .capacity = 100,
                           .room = 0,
                           .location = {4096, 200}};
      std::string seed;
      Append(seed, shape);
      seed += bucket + entry + value.substr(of_chunk * 10);
      seeds.push_back(seed + seed.substr(sizeof shape));
    }
  }
  return seeds;
}
