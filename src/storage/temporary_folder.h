// A folder for one test, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace tailcast::storage {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent = ::testing::TempDir()) {
    std::string pattern = parent + "/tailcast_storage_XXXXXX";
    const char* made = mkdtemp(pattern.data());
    EXPECT_NE(made, nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tailcast::storage
