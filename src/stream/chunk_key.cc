#include "tailcast/stream/chunk_key.h"

#include "tailcast/base/check.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::stream {
namespace {

// What a key is of; part of what is hashed, so that no two kinds share a key.
constexpr uint64_t kShardKind = 1;
constexpr uint64_t kChunkKind = 2;
constexpr uint64_t kMetadataKind = 3;
constexpr uint64_t kLockKind = 4;

void PutWord(char* out, uint64_t word) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<char>(word >> (8 * i));
}

}  // namespace

KeyMaker::KeyMaker(const ShardId& shard) {
  // The incarnation alone identifies the stream; its name adds nothing.
  char text[24];
  PutWord(text, kShardKind);
  PutWord(text + 8, Raw(shard.stream.incarnation));
  PutWord(text + 16, static_cast<uint64_t>(shard.shard));
  const Hash128Value hash = Hash128(std::string_view(text, sizeof text));
  shard_ = {hash.hi, hash.lo};
}

cache::Key KeyMaker::Make(uint64_t kind, uint64_t a, uint64_t b, uint64_t c) const {
  char text[48];
  PutWord(text, shard_.hi);
  PutWord(text + 8, shard_.lo);
  PutWord(text + 16, kind);
  PutWord(text + 24, a);
  PutWord(text + 32, b);
  PutWord(text + 40, c);
  const Hash128Value hash = Hash128(std::string_view(text, sizeof text));
  return {hash.hi, hash.lo};
}

cache::Key KeyMaker::Chunk(int64_t seq, Part part, int64_t chunk_size, int64_t number) const {
  // Sequence numbers have 10 digits (34 bits), so the part fits beside them.
  return Make(kChunkKind, static_cast<uint64_t>(seq) << 1 | static_cast<uint64_t>(part),
              static_cast<uint64_t>(chunk_size), static_cast<uint64_t>(number));
}

cache::Key KeyMaker::MetadataGroup(int64_t seq) const {
  TAILCAST_CHECK(seq >= 0);
  return Make(kMetadataKind, static_cast<uint64_t>(MetadataGroupOf(seq)), 0, 0);
}

cache::Key KeyMaker::Lock(int64_t seq, int layer) const {
  return Make(kLockKind, static_cast<uint64_t>(seq), static_cast<uint64_t>(layer), 0);
}

}  // namespace tailcast::stream
