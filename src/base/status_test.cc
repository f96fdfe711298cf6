#include "tailcast/base/status.h"

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast {
namespace {

using ::testing::HasSubstr;

TEST(ErrnoStatus, OnlyAFullDiskOrQuotaIsOne) {
  for (const int error : {ENOSPC, EDQUOT}) {
    EXPECT_TRUE(IsResourceExhausted(ErrnoStatus(error, "write x"))) << error;
  }
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    EXPECT_TRUE(IsUnavailable(ErrnoStatus(error, "open x"))) << error;
  }
}

TEST(ErrnoStatus, SaysWhatFailedAndWhy) {
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write /data/x").ToString(),
            "ResourceExhausted: write /data/x: No space left on device");
  EXPECT_EQ(ErrnoStatus(ENOMEM, "map x").message(), "map x: Cannot allocate memory");
  EXPECT_THAT(ErrnoStatus(EMFILE, "open x").message(), HasSubstr("Too many open files; raise"));
}

}  // namespace
}  // namespace tailcast
