#include "tailcast/cell/floors.h"

#include "gtest/gtest.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {
namespace {

using stream::StreamIncarnation;

stream::ShardId Shard(uint64_t incarnation, int32_t shard = 0) {
  return {{"s", StreamIncarnation{incarnation}}, shard};
}

TEST(Floors, OnlyRiseAndAreDurable) {
  v1::RegistrySnapshot durable;
  {
    Floors floors(&durable);
    EXPECT_EQ(floors.Floor(Shard(1)), 1);
    EXPECT_EQ(floors.Trimmed(Shard(1)), 1);
    EXPECT_TRUE(floors.Raise(Shard(1), 9));
    EXPECT_FALSE(floors.Raise(Shard(1), 4));
    EXPECT_FALSE(floors.Raise(Shard(1), 9));
    EXPECT_TRUE(floors.Trim(Shard(1, 2), 7));
    EXPECT_FALSE(floors.Trim(Shard(1, 2), 6));
  }
  const v1::RegistrySnapshot copy = durable;
  v1::RegistrySnapshot read = copy;
  const Floors floors(&read);
  EXPECT_EQ(floors.Floor(Shard(1)), 9);
  EXPECT_EQ(floors.Floor(Shard(1, 2)), 1);
  EXPECT_EQ(floors.Trimmed(Shard(1, 2)), 7);
  EXPECT_EQ(floors.Floor(Shard(2)), 1) << "another incarnation";
}

TEST(Floors, SayHowLongWhomIsWaitedFor) {
  v1::RegistrySnapshot durable;
  Floors floors(&durable);
  EXPECT_FALSE(floors.NoteHeldUp(Shard(1), "eu", 3, Duration()));
  EXPECT_TRUE(floors.NoteHeldUp(Shard(1), "eu", 3, Duration::Seconds(5)));
  EXPECT_TRUE(floors.NoteHeldUp(Shard(1), "asia", 4, Duration::Seconds(6)));
  EXPECT_TRUE(floors.NoteHeldUp(Shard(1), "eu", 3, Duration::Seconds(9)));
  const Floors again(&durable);
  ASSERT_NE(again.HeldUp(Shard(1), "eu"), nullptr);
  EXPECT_EQ(again.HeldUp(Shard(1), "eu")->time_us(), 9'000'000);
  EXPECT_EQ(again.HeldUp(Shard(1), "eu")->done_seq(), 3);
  EXPECT_EQ(again.HeldUp(Shard(1, 1), "eu"), nullptr);
  EXPECT_EQ(again.Floor(Shard(1)), 1);
  EXPECT_TRUE(floors.NoteHeldUp(Shard(1), "eu", 3, Duration()));
  EXPECT_EQ(floors.HeldUp(Shard(1), "eu"), nullptr);
  EXPECT_NE(floors.HeldUp(Shard(1), "asia"), nullptr);
}

TEST(Floors, SayWhenFilesWereThere) {
  v1::RegistrySnapshot durable;
  Floors floors(&durable);
  EXPECT_EQ(floors.LastSeen(Shard(1)).first, 0);
  EXPECT_EQ(floors.SeenBy(Shard(1), 1), std::nullopt);
  floors.NoteSeen(Shard(1), 3, Duration::Seconds(10), Duration());
  floors.NoteSeen(Shard(1), 7, Duration::Seconds(20), Duration());
  floors.NoteSeen(Shard(1, 1), 2, Duration::Seconds(20), Duration());
  EXPECT_TRUE(floors.NoteRan(Duration::Seconds(25)));
  EXPECT_FALSE(floors.NoteRan(Duration::Seconds(24)));
  const Floors again(&durable);
  EXPECT_EQ(again.ran(), Duration::Seconds(25));
  EXPECT_EQ(again.SeenBy(Shard(1), 1), Duration::Seconds(10));
  EXPECT_EQ(again.SeenBy(Shard(1), 3), Duration::Seconds(10));
  EXPECT_EQ(again.SeenBy(Shard(1), 4), Duration::Seconds(20));
  EXPECT_EQ(again.SeenBy(Shard(1), 8), std::nullopt);
  EXPECT_EQ(again.LastSeen(Shard(1)), (std::pair<int64_t, Duration>(7, Duration::Seconds(20))));
  EXPECT_EQ(again.LastSeen(Shard(1, 1)).first, 2);
}

// What is kept of it is little, and never says that a file is older than it is.
TEST(Floors, ForgetWhenOldFilesWereThere) {
  v1::RegistrySnapshot durable;
  Floors floors(&durable);
  const auto note = [&](int64_t seq, int64_t old) {
    floors.NoteSeen(Shard(1), seq, Duration::Seconds(seq), Duration::Seconds(old));
  };
  const auto kept = [&] { return durable.floors(0).seen_size(); };
  for (int64_t seq = 1; seq <= 5; ++seq) note(seq, 0);
  note(6, 4);
  EXPECT_EQ(kept(), 4);
  EXPECT_EQ(floors.SeenBy(Shard(1), 1), Duration::Seconds(3)) << "old, too";
  EXPECT_EQ(floors.SeenBy(Shard(1), 4), Duration::Seconds(4));
  floors.Raise(Shard(1), 5);
  note(7, 4);
  EXPECT_EQ(kept(), 3);
  for (int64_t seq = 8; seq <= 1000; ++seq) {
    note(seq, 0);
    EXPECT_LE(kept(), Floors::kSeenMax);
    for (int64_t asked = 5; asked <= seq; ++asked) {
      ASSERT_GE(floors.SeenBy(Shard(1), asked).value(), Duration::Seconds(asked));
    }
  }
  EXPECT_EQ(floors.LastSeen(Shard(1)).first, 1000);
}

TEST(Floors, GoWithTheirStream) {
  v1::RegistrySnapshot durable;
  Floors floors(&durable);
  for (uint64_t incarnation = 1; incarnation <= 3; ++incarnation) {
    for (int32_t shard = 0; shard < 3; ++shard) floors.Raise(Shard(incarnation, shard), 5);
  }
  floors.Forget(Shard(2).stream);
  EXPECT_EQ(durable.floors_size(), 6);
  EXPECT_EQ(floors.Floor(Shard(2, 1)), 1);
  EXPECT_TRUE(floors.Raise(Shard(3, 1), 6));
  EXPECT_TRUE(floors.Raise(Shard(2, 1), 2));
  const Floors again(&durable);
  EXPECT_EQ(again.Floor(Shard(1, 2)), 5);
  EXPECT_EQ(again.Floor(Shard(3, 1)), 6);
  EXPECT_EQ(again.Floor(Shard(2, 1)), 2);
}

TEST(Retention, IsRefusedWhereItSaysNothing) {
  v1::Retention retention;
  EXPECT_TRUE(CheckRetention(retention).ok());
  retention.set_drop(true);
  EXPECT_TRUE(IsInvalidArgument(CheckRetention(retention)));
  retention.set_shard_bytes_max(1);
  EXPECT_TRUE(CheckRetention(retention).ok());
  retention.set_age_max_us(-1);
  EXPECT_TRUE(IsInvalidArgument(CheckRetention(retention)));
}

}  // namespace
}  // namespace tailcast::cell
