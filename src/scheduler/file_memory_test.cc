// Which files are forgotten and which are put off, and what that costs.
#include "tailcast/scheduler/file_memory.h"

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/scheduler/tree_testing.h"

namespace tailcast::scheduler {
namespace {

using stream::Layer;
using stream::Stem;
using stream::TreeVersion;

Stem File(int64_t seq) { return {seq, 1000 + seq, (seq - 1) * 100, (seq - 1) * 2}; }

class FileMemoryTest : public ::testing::Test {
 protected:
  using Row = OperationTable::Row;

  explicit FileMemoryTest(int64_t files_max = 4)
      : shard_(files_max), memory_(operations_, files_max) {}

  // b and c lack it, and want it. False: there was no room.
  bool Add(int64_t seq) {
    if (!shard_.Add(File(seq), false)) {
      memory_.OnNoRoom(id_);
      if (!memory_.MakeRoom(id_, shard_, cells_)) return false;
      EXPECT_TRUE(shard_.Add(File(seq), false));
    }
    for (const char* cell : {"b", "c"}) {
      for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
        operations_.Release(At(0), operations_.Add({{id_, File(seq)}, layer, cell}, true).first);
      }
    }
    return true;
  }
  Row Find(int64_t seq, const std::string& cell, Layer layer = Layer::kPrimary) {
    return operations_.Find({{id_, File(seq)}, layer, cell});
  }
  void Start(int64_t seq, const std::string& cell, Layer layer = Layer::kPrimary) {
    operations_.Start(Find(seq, cell, layer), TreeVersion{1}, {"r0", "w0", "b:1", ""}, {});
  }
  // Its writer has the file open.
  void Open(int64_t seq, const std::string& cell) {
    Start(seq, cell);
    operations_.Confirm(Find(seq, cell));
    v1::OperationReport report;
    report.set_opened(true);
    operations_.Note(At(1), Find(seq, cell), report);
  }
  void Copied(int64_t seq, const std::string& cell) {
    for (const Layer layer : {Layer::kPrimary, Layer::kCache}) {
      Start(seq, cell, layer);
      operations_.Finish(Find(seq, cell, layer));
    }
  }
  bool IsKnown(int64_t seq) const { return shard_.Find(seq) != nullptr; }
  bool HasOperations(int64_t seq) {
    return Find(seq, "b") != operations_.end() || Find(seq, "c") != operations_.end();
  }

  const stream::ShardId id_{{"s", stream::StreamIncarnation{7}}, 0};
  std::set<std::string> cells_ = {"b", "c"};  // the stream is copied to them
  WorkerTable workers_{{}};
  OperationTable operations_{{}, workers_, 1};
  ShardFiles shard_;
  FileMemory memory_;
};

TEST_F(FileMemoryTest, AFileThatIsCopiedEverywhereIsForgottenWithItsOperations) {
  for (int64_t seq = 1; seq <= 3; ++seq) Add(seq);
  Copied(1, "b");
  memory_.ForgetIfDone(id_, shard_, 1);
  EXPECT_TRUE(HasOperations(1)) << "c lacks it";
  Copied(1, "c");
  Copied(2, "b");
  Copied(2, "c");
  memory_.ForgetIfDone(id_, shard_, 1);
  EXPECT_TRUE(shard_.IsDone(1));
  EXPECT_FALSE(HasOperations(1));
  EXPECT_TRUE(HasOperations(2)) << "it was not looked at";
  memory_.ForgetDone(id_, shard_);
  EXPECT_TRUE(shard_.IsDone(2));
  EXPECT_TRUE(IsKnown(3));
}

// One that lives may wait for an answer, or for its turn.
TEST_F(FileMemoryTest, WhatOnlyADeadCellLacksIsPutOffBeforeWhatALivingOneWaitsFor) {
  for (int64_t seq = 1; seq <= 4; ++seq) Add(seq);
  Copied(1, "b");
  Open(4, "b");
  EXPECT_TRUE(Add(5));
  EXPECT_FALSE(HasOperations(1)) << "b has it";
  EXPECT_FALSE(IsKnown(1));
  EXPECT_FALSE(shard_.IsDone(1)) << "c lacks it";
  EXPECT_TRUE(HasOperations(2)) << "b waits for it";
  EXPECT_EQ(memory_.put_off(), 1);
  ASSERT_TRUE(memory_.last_put_off());
  EXPECT_EQ(*memory_.last_put_off(), id_);
  // Now there is none that b has.
  EXPECT_TRUE(Add(6));
  EXPECT_FALSE(HasOperations(3));
  EXPECT_TRUE(HasOperations(2)) << "the oldest come first when the cell is back";
}

// What is being copied goes on.
TEST_F(FileMemoryTest, AFileThatIsBeingCopiedIsNotPutOff) {
  for (int64_t seq = 1; seq <= 4; ++seq) {
    Add(seq);
    Start(seq, "b");
  }
  EXPECT_FALSE(Add(5));
  EXPECT_FALSE(IsKnown(5));
  EXPECT_EQ(memory_.put_off(), 1);
  for (int64_t seq = 1; seq <= 4; ++seq) EXPECT_TRUE(HasOperations(seq)) << seq;
}

class FullFileMemoryTest : public FileMemoryTest {
 protected:
  static constexpr int64_t kFiles = 5000;
  FullFileMemoryTest() : FileMemoryTest(kFiles) {
    for (int64_t seq = 1; seq <= kFiles; ++seq) Add(seq);
    Open(kFiles, "b");
  }
  int64_t Looks() { return memory_.looks() - std::exchange(looks_, memory_.looks()); }
  int64_t looks_ = 0;
};

// b gets on, and waits for each of the files.
TEST_F(FullFileMemoryTest, RoomForANewFileCostsFewLooksWhereNoneIsFound) {
  Looks();
  for (int64_t seq = kFiles + 1; seq <= 2 * kFiles; ++seq) ASSERT_TRUE(Add(seq)) << seq;
  EXPECT_LE(Looks(), kFiles * (FileMemory::kLooksPerFile + 2) + kFiles);
}

// b gets on, and waits for each of the files; d gets on now and then.
TEST_F(FullFileMemoryTest, RoomForANewFileCostsFewLooksWhereOtherCellsGetOnEachTime) {
  operations_.Release(At(0),
                      operations_.Add({{id_, File(kFiles)}, Layer::kPrimary, "d"}, true).first);
  Open(kFiles, "d");
  Looks();
  for (int64_t i = 1; i <= kFiles; ++i) {
    if (!cells_.erase("d")) cells_.insert("d");
    ASSERT_TRUE(Add(kFiles + i)) << i;
  }
  EXPECT_LE(Looks(), kFiles * (FileMemory::kLooksPerFile + 2) + kFiles);
}

// b has what is old, and waits for what is new.
TEST_F(FullFileMemoryTest, RoomForANewFileCostsFewLooksWhereItIsFoundFarBelow) {
  for (int64_t seq = 1; seq <= kFiles / 2; ++seq) Copied(seq, "b");
  Looks();
  for (int64_t i = 0; i < kFiles / 2; ++i) {
    ASSERT_TRUE(Add(kFiles + 1 + i));
    EXPECT_FALSE(IsKnown(kFiles / 2 - i)) << "the newest that b has";
  }
  EXPECT_LE(Looks(), kFiles / 2 * (FileMemory::kLooksPerFile + 2) + kFiles);
}

TEST_F(FullFileMemoryTest, WhatCanBePutOffLaterIsFoundAfterAWhile) {
  ASSERT_TRUE(Add(kFiles + 1));
  for (int64_t seq = 1; seq <= 1000; ++seq) Copied(seq, "b");
  for (int64_t i = 2; i <= 2 + kFiles / FileMemory::kLooksPerFile; ++i)
    ASSERT_TRUE(Add(kFiles + i));
  EXPECT_FALSE(IsKnown(1000));
}

}  // namespace
}  // namespace tailcast::scheduler
