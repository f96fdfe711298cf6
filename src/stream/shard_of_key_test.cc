#include "tailcast/stream/shard_of_key.h"

#include <gtest/gtest.h>

#include <string>

namespace tailcast::stream {
namespace {

// Streams that exist were written by this: it never changes. tests/system/clients_test.py asks the
// command line, C and Python the same. (Computed by another implementation of the hash.)
TEST(ShardOfKey, IsTheSameForEver) {
  struct Known {
    std::string key;
    int32_t of_4, of_7, of_10000;
  };
  const Known known[] = {
      {"", 0, 0, 0},
      {"a", 2, 5, 7498},
      {"AA", 3, 1, 8163},
      {"UA", 2, 6, 8086},
      {"user-1", 2, 4, 770},
      {"user-2", 3, 4, 463},
      {"1234567890123456", 1, 3, 8545},
      {"12345678901234567", 3, 5, 2579},
      {"Zürich", 3, 2, 3615},
      {"a longer key of more than thirty-two bytes", 1, 6, 105},
  };
  for (const Known& k : known) {
    EXPECT_EQ(ShardOfKey(k.key, 1), 0) << k.key;
    EXPECT_EQ(ShardOfKey(k.key, 4), k.of_4) << k.key;
    EXPECT_EQ(ShardOfKey(k.key, 7), k.of_7) << k.key;
    EXPECT_EQ(ShardOfKey(k.key, 10000), k.of_10000) << k.key;
  }
}

}  // namespace
}  // namespace tailcast::stream
