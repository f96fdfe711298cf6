#include "tailcast/fuzz/mutator.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tailcast::fuzz {
namespace {

// clang-format off
constexpr int64_t kInteresting[] = {
    0, 1, -1, 2, 7, 8, 9, 16, 32, 63, 64, 65, 100, 127,
    128, 255, 256, 511, 512, 513, 1024, 4095, 4096, 4097, INT16_MAX, INT16_MIN, UINT16_MAX, 65536,
    65537, 1 << 20, INT32_MAX, INT32_MIN, UINT32_MAX, int64_t{1} << 32, int64_t{1} << 40, INT64_MAX, INT64_MIN, INT64_MAX - 1};
// clang-format on
constexpr char kWordsOfText[] = "0123456789-+.:,;/\\\"'{}[]&*!|>%@#~? \n\t\r";

uint64_t Swapped(uint64_t value, size_t bytes) {
  return __builtin_bswap64(value) >> (64 - 8 * bytes);
}

}  // namespace

size_t Mutator::Mutate(uint8_t* data, size_t size, size_t size_max) {
  int steps = 1;
  while (steps < 8 && rng_.Below(2) == 0) ++steps;
  for (int i = 0; i < steps; ++i) size = Step(data, size, size_max);
  return size;
}

size_t Mutator::Step(uint8_t* data, size_t size, size_t size_max) {
  if (size == 0) return Insert(data, size, size_max);
  switch (rng_.Below(14)) {
    case 0:
      data[rng_.Below(size)] ^= static_cast<uint8_t>(1u << rng_.Below(8));
      return size;
    case 1:
      data[rng_.Below(size)] = static_cast<uint8_t>(rng_.Next());
      return size;
    case 2:
      data[rng_.Below(size)] =
          static_cast<uint8_t>(kWordsOfText[rng_.Below(sizeof kWordsOfText - 1)]);
      return size;
    case 3:
      PutInteger(data, size);
      return size;
    case 4:
      AddToInteger(data, size);
      return size;
    case 5:
      PutLength(data, size);
      return size;
    case 6:
      return Insert(data, size, size_max);
    case 7:
      return Erase(data, size);
    case 8:
      return rng_.Below(4) == 0 ? rng_.Below(size) : Erase(data, size);
    case 9:
      MovePiece(data, size);
      return size;
    case 10:
    case 11:
      return Splice(data, size, size_max);
    default:
      if (!PutCompared(data, size)) PutInteger(data, size);
      return size;
  }
}

size_t Mutator::Insert(uint8_t* data, size_t size, size_t size_max) {
  if (size >= size_max) return size;
  const size_t most = std::min<size_t>(size_max - size, rng_.Below(8) == 0 ? 1024 : 16);
  const size_t count = 1 + rng_.Below(most);
  const size_t at = rng_.Below(size + 1);
  std::memmove(data + at + count, data + at, size - at);
  const uint64_t kind = rng_.Below(3);
  const auto same = static_cast<uint8_t>(kind == 0 ? 0 : rng_.Next());
  for (size_t i = 0; i < count; ++i) {
    data[at + i] = kind == 2 ? static_cast<uint8_t>(rng_.Next()) : same;
  }
  return size + count;
}

size_t Mutator::Erase(uint8_t* data, size_t size) {
  const size_t count = 1 + rng_.Below(rng_.Below(4) == 0 ? size : std::min<size_t>(size, 16));
  const size_t at = rng_.Below(size - count + 1);
  std::memmove(data + at, data + at + count, size - at - count);
  return size - count;
}

size_t Mutator::Splice(uint8_t* data, size_t size, size_t size_max) {
  if (others_->empty()) return Insert(data, size, size_max);
  const std::string& other = (*others_)[rng_.Below(others_->size())];
  if (other.empty()) return Insert(data, size, size_max);
  const size_t from = rng_.Below(other.size());
  const size_t piece = 1 + rng_.Below(other.size() - from);
  if (rng_.Below(2) == 0) {  // over what is there
    const size_t at = rng_.Below(size);
    std::memcpy(data + at, other.data() + from, std::min(piece, size - at));
    return size;
  }
  const size_t at = rng_.Below(size + 1);
  const size_t count = std::min(piece, size_max - size);
  std::memmove(data + at + count, data + at, size - at);
  std::memcpy(data + at, other.data() + from, count);
  return size + count;
}

void Mutator::PutInteger(uint8_t* data, size_t size) {
  const size_t bytes = std::min<size_t>(size_t{1} << rng_.Below(4), std::bit_floor(size));
  auto value = static_cast<uint64_t>(kInteresting[rng_.Below(std::size(kInteresting))]);
  if (rng_.Below(4) == 0) value = Swapped(value, bytes);
  std::memcpy(data + rng_.Below(size - bytes + 1), &value, bytes);
}

void Mutator::AddToInteger(uint8_t* data, size_t size) {
  const size_t bytes = std::min<size_t>(size_t{1} << rng_.Below(4), std::bit_floor(size));
  uint8_t* const at = data + rng_.Below(size - bytes + 1);
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  const bool swapped = rng_.Below(4) == 0;
  if (swapped) value = Swapped(value, bytes);
  value += static_cast<uint64_t>(rng_.Between(-16, 16));
  if (swapped) value = Swapped(value, bytes);
  std::memcpy(at, &value, bytes);
}

// A number that could be the size of what follows, or nearly.
void Mutator::PutLength(uint8_t* data, size_t size) {
  const size_t bytes = std::min<size_t>(size_t{1} << rng_.Below(4), std::bit_floor(size));
  const size_t at = rng_.Below(size - bytes + 1);
  uint64_t value = rng_.Below(2) == 0 ? size - at - bytes : size;
  value += static_cast<uint64_t>(rng_.Between(-2, 2));
  std::memcpy(data + at, &value, bytes);
}

void Mutator::MovePiece(uint8_t* data, size_t size) {
  const size_t count = 1 + rng_.Below(std::min<size_t>(size, 64));
  std::memmove(data + rng_.Below(size - count + 1), data + rng_.Below(size - count + 1), count);
}

bool Mutator::PutCompared(uint8_t* data, size_t size) {
  for (int tries = 0; tries < 4 && !comparisons_.empty(); ++tries) {
    Comparison c = comparisons_[rng_.Below(comparisons_.size())];
    if (rng_.Below(2) == 0) std::swap(c.left, c.right);
    const bool swapped = rng_.Below(4) == 0;
    // Compilers compare small fields as wide ones.
    for (size_t bytes = c.bytes; bytes >= 1; bytes /= 2) {
      if (bytes > size) continue;
      if (bytes < 8 && (c.left >> (8 * bytes)) != 0) break;
      const uint64_t have = swapped ? Swapped(c.left, bytes) : c.left;
      uint64_t want = c.right + static_cast<uint64_t>(rng_.Below(4) == 0 ? rng_.Between(-1, 1) : 0);
      if (swapped) want = Swapped(want, bytes);
      const size_t begin = rng_.Below(size - bytes + 1);
      for (size_t i = 0; i <= size - bytes; ++i) {
        uint8_t* const at = data + (begin + i) % (size - bytes + 1);
        if (std::memcmp(at, &have, bytes) != 0) continue;
        std::memcpy(at, &want, bytes);
        return true;
      }
    }
  }
  return false;
}

}  // namespace tailcast::fuzz
