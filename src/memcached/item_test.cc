#include "tailcast/memcached/item.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"

namespace tailcast::memcached {
namespace {

using cache::Key;
using cache::MergeRule;

const ItemFormat kFormat("data of x");
constexpr Key kKey{0x0123456789abcdef, 0xf};

TEST(ItemTest, ReadsBackWhatItWrote) {
  for (const MergeRule rule :
       {MergeRule::kLongerWins, MergeRule::kMaxLanes, MergeRule::kMaxBytes}) {
    for (const std::string& bytes :
         {std::string(), std::string("12345678"), std::string(4096, 'x')}) {
      const std::string item = kFormat.Encode(kKey, rule, bytes);
      const auto value = kFormat.Decode(kKey, item);
      ASSERT_TRUE(value.has_value());
      EXPECT_EQ(value->rule, rule);
      EXPECT_EQ(value->bytes, bytes);
    }
  }
}

// The format: other versions of this program read it.
TEST(ItemTest, BytesAreThoseOfTheFormat) {
  EXPECT_EQ(kFormat.KeyOf(kKey),
            "tailcast:" + kFormat.KeyOf(kKey).substr(9, 16) + ":0123456789abcdef000000000000000f");
  const std::string item = kFormat.Encode(kKey, MergeRule::kMaxBytes, "value");
  EXPECT_EQ(item.substr(0, 4), "TCM1");
  EXPECT_EQ(item.substr(8), std::string("\2\0\0\0value", 9));
}

TEST(ItemTest, EveryDamagedByteIsFound) {
  const std::string good = kFormat.Encode(kKey, MergeRule::kLongerWins, "some value");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(kFormat.Decode(kKey, damaged).has_value()) << at;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(kFormat.Decode(kKey, good.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(kFormat.Decode(kKey, good + "x").has_value());
}

TEST(ItemTest, ItemsOfALaterFormatAreForeign) {
  std::string item = kFormat.Encode(kKey, MergeRule::kLongerWins, "some value");
  item[10] = 1;
  const uint32_t crc = Crc32cExtend(Crc32c(kFormat.KeyOf(kKey)), item.data() + 8, item.size() - 8);
  std::memcpy(item.data() + 4, &crc, sizeof crc);
  EXPECT_FALSE(kFormat.Decode(kKey, item).has_value());
}

TEST(ItemTest, ItemsOfAnotherKeyOrSpaceAreForeign) {
  const std::string item = kFormat.Encode(kKey, MergeRule::kLongerWins, "some value");
  EXPECT_FALSE(kFormat.Decode({kKey.hi, kKey.lo + 1}, item).has_value());
  EXPECT_FALSE(ItemFormat("data of y").Decode(kKey, item).has_value());
  EXPECT_NE(ItemFormat("data of y").KeyOf(kKey), kFormat.KeyOf(kKey));
}

TEST(ItemTest, ValuesThatTheirRuleCannotHoldAreForeign) {
  EXPECT_FALSE(
      kFormat.Decode(kKey, kFormat.Encode(kKey, MergeRule::kMaxLanes, "7 bytes")).has_value());
  EXPECT_FALSE(
      kFormat.Decode(kKey, kFormat.Encode(kKey, static_cast<MergeRule>(3), "x")).has_value());
}

}  // namespace
}  // namespace tailcast::memcached
