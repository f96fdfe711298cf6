#include "tailcast/app/worker_counts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tailcast::app {
namespace {

class WorkerCountsTest : public ::testing::Test {
 protected:
  WorkerCountsTest() { std::filesystem::create_directories(dir_); }
  ~WorkerCountsTest() override { std::filesystem::remove_all(dir_); }
  void Put(const std::string& text) { std::ofstream(dir_ + "/workers.json") << text; }

  const std::string dir_ = ::testing::TempDir() + "/workers." + std::to_string(getpid());
};

TEST_F(WorkerCountsTest, WhatWasNeverChangedIsNotSaid) {
  const auto counts = ReadWorkerCounts(dir_);
  ASSERT_TRUE(counts.ok());
  EXPECT_TRUE(counts->empty());
}

TEST_F(WorkerCountsTest, AChangeLeavesTheOtherRoleAndTheOtherCells) {
  ASSERT_TRUE(ChangeWorkerCounts(dir_, "us", {.readers = 3}).ok());
  ASSERT_TRUE(ChangeWorkerCounts(dir_, "eu", {.readers = 2, .writers = 5}).ok());
  ASSERT_TRUE(ChangeWorkerCounts(dir_, "us", {.writers = 4}).ok());
  ASSERT_TRUE(ChangeWorkerCounts(dir_, "us", {.readers = 1}).ok());
  const auto counts = ReadWorkerCounts(dir_);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->at("us"), (WorkerCounts{1, 4}));
  EXPECT_EQ(counts->at("eu"), (WorkerCounts{2, 5}));
}

TEST_F(WorkerCountsTest, ADamagedFileIsSaidToBeAndIsNotOverwritten) {
  for (const char* text : {"", "{", "[]", R"({"version": 2, "cells": {}})", R"({"version": 1})",
                           R"({"version": 1, "cells": {"us": {"readers": 0}}})",
                           R"({"version": 1, "cells": {"us": {"readers": 101}}})",
                           R"({"version": 1, "cells": {"us": {"writers": "two"}}})",
                           R"({"version": 1, "cells": {"us": 3}})"}) {
    Put(text);
    const auto counts = ReadWorkerCounts(dir_);
    ASSERT_FALSE(counts.ok()) << text;
    EXPECT_NE(counts.status().message().find("workers.json is damaged"), std::string::npos);
    EXPECT_FALSE(ChangeWorkerCounts(dir_, "us", {.readers = 1}).ok()) << text;
  }
}

TEST(WorkerNames, CountFromOne) {
  EXPECT_EQ(WorkerNames("reader", 2), (std::vector<std::string>{"reader-1", "reader-2"}));
  EXPECT_TRUE(WorkerNames("writer", 0).empty());
}

}  // namespace
}  // namespace tailcast::app
