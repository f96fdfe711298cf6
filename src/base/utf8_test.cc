#include "tailcast/base/utf8.h"

#include "gtest/gtest.h"

namespace tailcast {
namespace {

TEST(Utf8Test, TextIsText) {
  for (const char* good :
       {"", "a", "z\u00fcrich", "\u6771\u4eac", "\U0001f600", "\x7f", "\xc2\x80", "\xdf\xbf",
        "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
}

TEST(Utf8Test, OtherBytesAreNone) {
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "a\xc3", "\xc3(", "\xe0\x9f\xbf",
                          "\xe2\x82", "\xe2(\xa1", "\xe2\x82(", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace tailcast
