#include "tailcast/app/position_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;

class PositionFileTest : public ::testing::Test {
 protected:
  PositionFileTest() { std::filesystem::create_directory(folder_); }
  ~PositionFileTest() override { std::filesystem::remove_all(folder_); }
  static stream::Position At(int32_t shard, int64_t number) {
    return {stream::StreamIncarnation{7}, shard, number, number * 10};
  }
  const std::string folder_ = ::testing::TempDir() + "/positions." + std::to_string(getpid());
  const std::string path_ = folder_ + "/p";
};

TEST_F(PositionFileTest, GivesBackWhatWasWrittenLast) {
  EXPECT_TRUE(ReadPositionFile(path_)->empty()) << "there is none";
  ASSERT_TRUE(WritePositionFile(path_, {At(0, 1), At(1, 2), At(2, 3)}).ok());
  ASSERT_TRUE(WritePositionFile(path_, {At(0, 5), At(1, 2)}).ok());
  EXPECT_EQ(*ReadPositionFile(path_), (std::vector{At(0, 5), At(1, 2)}));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

TEST_F(PositionFileTest, AWriteThatWasCutOffLeavesTheOldOne) {
  ASSERT_TRUE(WritePositionFile(path_, {At(0, 1)}).ok());
  std::ofstream(path_ + ".part") << "t1.00000000";
  EXPECT_EQ(*ReadPositionFile(path_), std::vector{At(0, 1)});
  ASSERT_TRUE(WritePositionFile(path_, {At(0, 2)}).ok());
  EXPECT_EQ(*ReadPositionFile(path_), std::vector{At(0, 2)});
}

TEST_F(PositionFileTest, ALineThatIsNoPositionIsNamed) {
  std::ofstream(path_) << "# mine\n" << At(0, 1).ToString() << "\n\nt1.x\n";
  const auto read = ReadPositionFile(path_);
  ASSERT_TRUE(IsDataLoss(read.status())) << read.status().ToString();
  EXPECT_THAT(read.status().message(), HasSubstr(path_ + ":4: "));
}

TEST_F(PositionFileTest, SaysWhereItCannotWrite) {
  const Status status = WritePositionFile(folder_ + "/no/p", {At(0, 1)});
  EXPECT_THAT(status.message(), HasSubstr(folder_ + "/no/p.part"));
}

}  // namespace
}  // namespace tailcast::app
