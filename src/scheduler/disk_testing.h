// For tests of what the scheduler does to the disk: a fake one in virtual time.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

class DiskTest : public ::testing::Test {
 protected:
  // A file on a key of its own.
  std::unique_ptr<storage::AppendFile> Create(const stream::ShardId& shard,
                                              const std::string& name) {
    std::unique_ptr<storage::AppendFile> file;
    store_.CreateExclusive(stream::ShardDir(shard), name, name,
                           scope_.Bind([&](auto made) { file = std::move(*made); }));
    EXPECT_TRUE(time_.RunUntil([&] { return file != nullptr; }, Duration::Seconds(10)));
    return file;
  }

  const stream::StreamId flights_{"flights", stream::StreamIncarnation{7}};
  const stream::StreamId prices_{"prices", stream::StreamIncarnation{8}};
  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> disk_loop_ = time_.MakeLoop("disk");
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("scheduler");
  storage::FakeDisk disk_{disk_loop_.get(), 1};
  storage::FakeStore store_{&disk_, loop_.get()};
  Scope scope_;
};

}  // namespace tailcast::scheduler
