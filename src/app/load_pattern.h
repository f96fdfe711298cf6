// The messages of `tailcast load`: each carries when it should have been sent and its number, and
// is filled with words that follow from the number, so that a consumer notices a gap, a repeat and
// any foreign byte.
//
//   0           8        16                       size
//   | time us   | number | words of the pattern ... |   little-endian
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tailcast::app {

inline constexpr size_t kLoadHeaderBytes = 16;

inline uint64_t LoadWord(uint64_t number, uint64_t index) {
  return (number + 1) * 0x9e3779b97f4a7c15ull + index * 0xc2b2ae3d27d4eb4full;
}

inline void FillLoadMessage(std::string& message, int64_t intended_us, uint64_t number) {
  std::memcpy(message.data(), &intended_us, 8);
  std::memcpy(message.data() + 8, &number, 8);
  uint64_t word = LoadWord(number, 0);
  size_t at = kLoadHeaderBytes;
  for (; at + 8 <= message.size(); at += 8) {
    std::memcpy(message.data() + at, &word, 8);
    word += 0xc2b2ae3d27d4eb4full;
  }
  std::memcpy(message.data() + at, &word, message.size() - at);
}

struct LoadMessage {
  int64_t intended_us = 0;
  uint64_t number = 0;
  bool intact = false;
};

inline LoadMessage ReadLoadMessage(std::string_view bytes) {
  LoadMessage m;
  if (bytes.size() < kLoadHeaderBytes) return m;
  std::memcpy(&m.intended_us, bytes.data(), 8);
  std::memcpy(&m.number, bytes.data() + 8, 8);
  uint64_t word = LoadWord(m.number, 0);
  uint64_t difference = 0;
  size_t at = kLoadHeaderBytes;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t got;
    std::memcpy(&got, bytes.data() + at, 8);
    difference |= got ^ word;
    word += 0xc2b2ae3d27d4eb4full;
  }
  m.intact = difference == 0 && std::memcmp(bytes.data() + at, &word, bytes.size() - at) == 0;
  return m;
}

}  // namespace tailcast::app
