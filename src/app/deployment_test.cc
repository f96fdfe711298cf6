#include "tailcast/app/deployment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tailcast::app {
namespace {

class DeploymentTest : public ::testing::Test {
 protected:
  DeploymentTest() {
    std::string pattern = ::testing::TempDir() + "/deployment-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~DeploymentTest() override { std::filesystem::remove_all(dir_); }
  Deployment Make() {
    return {.dir = dir_, .pid = 7, .cells = {{"us", "a:1", {"cache-1"}}, {"europe-west", "b:2"}}};
  }
  std::string dir_;
};

TEST_F(DeploymentTest, IsReadBackWhileItsLockIsHeld) {
  auto lock = LockDeployment(dir_);
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(Make().Write().ok());
  const auto read = Deployment::Read(dir_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->pid, 7);
  EXPECT_EQ(read->cells[1].scheduler, "b:2");
  EXPECT_EQ(read->cells[0].processes, std::vector<std::string>{"cache-1"});
}

TEST_F(DeploymentTest, DoesNotRunOnceTheLockIsGone) {
  {
    auto lock = LockDeployment(dir_);
    ASSERT_TRUE(Make().Write().ok());
  }
  const auto read = Deployment::Read(dir_);
  EXPECT_TRUE(IsFailedPrecondition(read.status()));
  EXPECT_NE(read.status().message().find("tailcast up"), std::string::npos);
}

TEST_F(DeploymentTest, NamesAFolderWithoutOne) {
  const auto read = Deployment::Read(dir_ + "/nothing");
  EXPECT_TRUE(IsFailedPrecondition(read.status()));
  EXPECT_NE(read.status().message().find(dir_ + "/nothing"), std::string::npos);
}

TEST_F(DeploymentTest, ReportsADamagedFile) {
  auto lock = LockDeployment(dir_);
  std::ofstream(dir_ + "/deployment.json") << "{\"pid\": 1, \"cells\": [{}]}";
  EXPECT_TRUE(IsDataLoss(Deployment::Read(dir_).status()));
}

TEST_F(DeploymentTest, RefusesASecondLock) {
  auto lock = LockDeployment(dir_);
  ASSERT_TRUE(lock.ok());
  const auto second = LockDeployment(dir_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(getpid())), std::string::npos);
}

TEST_F(DeploymentTest, FindsCellsByNameAndSuggestsTheNearest) {
  const Deployment d = Make();
  EXPECT_EQ(d.Find("us")->scheduler, "a:1");
  EXPECT_NE(d.Find("europe-wst").status().message().find("europe-west"), std::string::npos);
  EXPECT_TRUE(IsInvalidArgument(d.Find("").status()));
}

TEST(FindCell, TakesOneOfCellAndDir) {
  EXPECT_EQ(*FindCell("h:1", "", ""), "h:1");
  EXPECT_TRUE(IsInvalidArgument(FindCell("", "", "").status()));
  EXPECT_TRUE(IsInvalidArgument(FindCell("h:1", "d", "").status()));
}

}  // namespace
}  // namespace tailcast::app
