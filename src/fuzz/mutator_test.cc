#include "tailcast/fuzz/mutator.h"

#include <gtest/gtest.h>

namespace tailcast::fuzz {
namespace {

std::string Changed(Mutator& mutator, const std::string& input, size_t size_max) {
  std::string bytes = input;
  bytes.resize(size_max);
  auto* data = reinterpret_cast<uint8_t*>(bytes.data());
  bytes.resize(mutator.Mutate(data, input.size(), size_max));
  return bytes;
}

TEST(MutatorTest, TheSameSeedMakesTheSameChanges) {
  const std::vector<std::string> others = {"another input", "x"};
  Mutator a(7, &others), b(7, &others), c(8, &others);
  std::string of_a, of_b, of_c;
  for (int i = 0; i < 100; ++i) {
    of_a += Changed(a, "some input", 64) + "|";
    of_b += Changed(b, "some input", 64) + "|";
    of_c += Changed(c, "some input", 64) + "|";
  }
  EXPECT_EQ(of_a, of_b);
  EXPECT_NE(of_a, of_c);
}

TEST(MutatorTest, NoChangeLeavesTheBounds) {
  const std::vector<std::string> others = {std::string(500, 'x'), "", "y"};
  for (const size_t size_max : {1, 2, 7, 8, 9, 64, 300}) {
    Mutator mutator(size_max, &others);
    std::string input;
    for (int i = 0; i < 3000; ++i) {  // asan watches what is behind the end
      std::string bytes(size_max, '\0');
      bytes.replace(0, input.size(), input);
      const size_t size =
          mutator.Mutate(reinterpret_cast<uint8_t*>(bytes.data()), input.size(), size_max);
      ASSERT_LE(size, size_max);
      input = bytes.substr(0, size);
    }
  }
}

TEST(MutatorTest, InputsBecomeLongerShorterAndTakePiecesOfOthers) {
  const std::vector<std::string> others = {"PIECE"};
  Mutator mutator(1, &others);
  bool longer = false, shorter = false, piece = false;
  for (int i = 0; i < 1000; ++i) {
    const std::string changed = Changed(mutator, "0123456789", 64);
    longer |= changed.size() > 10;
    shorter |= changed.size() < 10;
    piece |= changed.find("IEC") != std::string::npos;
  }
  EXPECT_TRUE(longer && shorter && piece);
}

TEST(MutatorTest, WhatAnInputWasComparedWithIsPutIn) {
  const std::vector<std::string> others;
  Mutator mutator(1, &others);
  const Comparison comparison = {0x34333231, 0x7a797877, 4};  // "1234" and "wxyz"
  mutator.SetComparisons({&comparison, 1});
  bool found = false;
  for (int i = 0; i < 200 && !found; ++i) {
    found = Changed(mutator, "__1234__", 16).find("wxyz") != std::string::npos;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tailcast::fuzz
