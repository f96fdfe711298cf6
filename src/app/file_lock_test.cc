#include "tailcast/app/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>

namespace tailcast::app {
namespace {

std::string HeldBy(const std::string& pid) { return "held by " + pid; }

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() {
    std::string pattern = ::testing::TempDir() + "/file_lock_XXXXXX";
    dir_ = mkdtemp(pattern.data());
    path_ = dir_ + "/lock";
  }
  ~FileLockTest() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
  std::string path_;
};

TEST_F(FileLockTest, RefusesASecondHolderAndNamesTheFirst) {
  const auto first = FileLock::Take(path_, HeldBy);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = FileLock::Take(path_, HeldBy);
  EXPECT_TRUE(IsFailedPrecondition(second.status()));
  EXPECT_EQ(second.status().message(), "held by " + std::to_string(getpid()));
}

TEST_F(FileLockTest, IsHeldUntilItsHolderIsGone) {
  EXPECT_FALSE(*FileLock::IsHeld(path_));
  {
    auto lock = FileLock::Take(path_, HeldBy);
    ASSERT_TRUE(lock.ok());
    const FileLock moved = std::move(*lock);
    EXPECT_TRUE(*FileLock::IsHeld(path_));
  }
  EXPECT_FALSE(*FileLock::IsHeld(path_));
  EXPECT_TRUE(FileLock::Take(path_, HeldBy).ok());
}

TEST_F(FileLockTest, AwaitReturnsOnceTheHolderIsGone) {
  auto held = std::make_unique<FileLock>(*FileLock::Take(path_, HeldBy));
  std::atomic<bool> let_go = false;
  auto waits = std::async(std::launch::async, [&] {
    const auto lock = FileLock::Await(path_);
    return lock.ok() && let_go;
  });
  let_go = true;
  held.reset();
  EXPECT_TRUE(waits.get());
}

TEST_F(FileLockTest, NamesAPathThatCanNotBeMade) {
  const auto lock = FileLock::Take(dir_ + "/nothing/lock", HeldBy);
  EXPECT_TRUE(IsNotFound(lock.status())) << lock.status();
  EXPECT_NE(lock.status().message().find(dir_ + "/nothing/lock"), std::string::npos);
}

}  // namespace
}  // namespace tailcast::app
