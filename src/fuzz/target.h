// What a fuzz target includes: a file x_fuzz.cc that defines LLVMFuzzerTestOneInput for the decoder
// in x.h. It runs under the driver of this module (hunt.h), and links with clang's libFuzzer as it
// is, so it calls nothing of this module but what is inline here.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
//     fuzz::Input input(data, size);
//     const auto record = Decode(input.Rest());
//     if (record) TAILCAST_CHECK(Encode(*record) == ..., "what decodes encodes to the same bytes");
//     return 0;
//   }
//   std::vector<std::string> tailcast::fuzz::Seeds() { return {Encode(...)}; }
//
// A target dies (TAILCAST_CHECK, a sanitizer, a signal, 30 s) on what no input may bring about.
// It depends on its input only, else an input that was found may not be found again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// A valid target runs any bytes, and gives 0. Called from one thread.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target may define it: how an input becomes the next one. It calls LLVMFuzzerMutate, and then
// repairs what nothing gets behind, such as a checksum (MutateAndRepair).
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed);
// Of the driver: changes `size` bytes in place, gives the new size, at most size_max.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace tailcast::fuzz {

// Valid inputs to begin with. A target may do without.
std::vector<std::string> Seeds();

// Takes an input apart. Past its end there are zeros and empty texts.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  explicit Input(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  T Take() {
    static_assert(std::is_integral_v<T>);
    T value{};
    const std::string_view bytes = Bytes(sizeof(T));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // In [0, bound); bound > 0.
  uint32_t Below(uint32_t bound) { return Take<uint32_t>() % bound; }
  std::string_view Bytes(size_t count) {
    const std::string_view bytes = left_.substr(0, std::min(count, left_.size()));
    left_.remove_prefix(bytes.size());
    return bytes;
  }
  std::string_view Rest() { return Bytes(left_.size()); }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

template <typename T>
void Append(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename T>
void StoreAt(uint8_t* data, size_t at, T value) {
  std::memcpy(data + at, &value, sizeof value);
}

// The body of a LLVMFuzzerCustomMutator: repair(data, size) makes checksums fit, in seven of eight
// inputs; the others have to be refused.
template <typename Repair>
size_t MutateAndRepair(uint8_t* data, size_t size, size_t size_max, unsigned int seed,
                       const Repair& repair) {
  size = LLVMFuzzerMutate(data, size, size_max);
  if (seed % 8 != 0) repair(data, size);
  return size;
}

}  // namespace tailcast::fuzz
