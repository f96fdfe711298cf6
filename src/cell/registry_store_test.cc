#include "tailcast/cell/registry_store.h"

#include <functional>
#include <optional>

#include <google/protobuf/stubs/logging.h>
#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::cell {
namespace {

// Room for the log as it is, and `more` bytes.
storage::FakeDiskOptions Full(const storage::FakeDisk& disk, int64_t more) {
  storage::FakeDiskOptions full;
  full.file_bytes = 100;
  full.capacity_bytes = disk.image().bytes_used(full.file_bytes) + more;
  return full;
}

class RegistryStoreTest : public ::testing::Test {
 protected:
  struct Process {
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<storage::FakeStore> files;
    std::unique_ptr<RegistryStore> registry;
  };
  Process Make(const RegistryStore::Options& options = {}) {
    Process p;
    p.loop = time_.MakeLoop("scheduler");
    p.files = std::make_unique<storage::FakeStore>(&disk_, p.loop.get());
    p.registry = std::make_unique<RegistryStore>(*p.loop, *p.files, options);
    return p;
  }
  Result<v1::RegistrySnapshot> Open(Process& p) {
    std::optional<Result<v1::RegistrySnapshot>> result;
    p.loop->Post(scope_.Bind(
        [&] { p.registry->Open(scope_.Bind([&](auto r) { result = std::move(r); })); }));
    EXPECT_TRUE(time_.RunUntil([&] { return result.has_value(); }, Duration::Seconds(60)));
    return *result;
  }
  Status Write(Process& p, v1::RegistrySnapshot snapshot) {
    std::optional<Status> result;
    p.loop->Post(scope_.Bind(
        [&] { p.registry->Write(snapshot, scope_.Bind([&](Status s) { result = s; })); }));
    EXPECT_TRUE(time_.RunUntil([&] { return result.has_value(); }, Duration::Seconds(60)));
    return *result;
  }
  // Opens it, fills the disk, and writes what there is and `stream`: written_ has no value as long
  // as there is no room.
  void WriteOnAFullDisk(Process& p, const std::string& stream, bool room_for_names = true) {
    const auto first = Open(p);
    ASSERT_TRUE(first.ok()) << first.status();
    storage::FakeDiskOptions full;
    if (room_for_names) full = Full(disk_, 0);
    full.room_for_names = room_for_names;
    disk_.SetOptions(full);
    written_.reset();
    p.loop->Post(scope_.Bind([this, &p, snapshot = WithStream(*first, stream)] {
      p.registry->Write(snapshot, scope_.Bind([this](const Status& s) { written_ = s; }));
    }));
    time_.RunFor(Duration::Seconds(5));
    ASSERT_FALSE(written_.has_value()) << *written_;
    ASSERT_TRUE(IsResourceExhausted(p.registry->no_room())) << p.registry->no_room();
  }
  static v1::RegistrySnapshot WithStream(v1::RegistrySnapshot s, const std::string& name) {
    s.add_streams()->set_name(name);
    return s;
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> disk_loop_ = time_.MakeLoop("disk");
  storage::FakeDisk disk_{disk_loop_.get(), 1};
  std::optional<Status> written_;
  Scope scope_;
};

TEST_F(RegistryStoreTest, EachOpenerHasAGreaterIncarnationAndFindsWhatWasWritten) {
  auto a = Make();
  auto first = Open(a);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->scheduler_incarnation(), 1u);
  ASSERT_TRUE(Write(a, WithStream(*first, "flights")).ok());
  auto b = Make();
  auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->scheduler_incarnation(), 2u);
  ASSERT_EQ(second->streams_size(), 1);
  EXPECT_EQ(second->streams(0).name(), "flights");
}

TEST_F(RegistryStoreTest, WhoWritesNothingLearnsOfItsFenceByAsking) {
  const auto check = [&](Process& p) {
    std::optional<Status> result;
    p.loop->Post(
        scope_.Bind([&] { p.registry->CheckFence(scope_.Bind([&](Status s) { result = s; })); }));
    EXPECT_TRUE(time_.RunUntil([&] { return result.has_value(); }, Duration::Seconds(60)));
    return *result;
  };
  auto a = Make({.file_bytes_max = 1});
  ASSERT_TRUE(Open(a).ok());
  EXPECT_TRUE(check(a).ok());
  auto asleep = Make({.file_bytes_max = 1});
  ASSERT_TRUE(Open(asleep).ok());
  auto b = Make({.file_bytes_max = 1});
  auto second = Open(b);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(IsFailedPrecondition(check(a)));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Write(b, *second).ok()) << "it rolls";
  EXPECT_TRUE(check(b).ok());
  EXPECT_TRUE(IsFailedPrecondition(check(asleep))) << "its file is gone by now";
}

TEST_F(RegistryStoreTest, ATornSnapshotMayHoldTheBytesOfAWholeOne) {
  const google::protobuf::LogSilencer quiet;  // those bytes are no name
  v1::RegistrySnapshot inner;
  inner.set_sequence(7);
  const std::string first = EncodeSnapshot(inner);
  const std::string log = first + EncodeSnapshot(WithStream(inner, first));
  const auto content = ParseRegistryLog(std::string_view(log).substr(0, log.size() - 1), "log");
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->snapshots, 1);
  EXPECT_EQ(content->torn_bytes, static_cast<int64_t>(log.size() - 1 - first.size()));
}

TEST_F(RegistryStoreTest, TheFencedSchedulerCannotWrite) {
  auto a = Make();
  auto first = Open(a);
  auto b = Make();
  auto second = Open(b);
  ASSERT_TRUE(second.ok());
  const Status status = Write(a, WithStream(*first, "forked"));
  EXPECT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(IsFailedPrecondition(Write(a, *first))) << "for good";
  ASSERT_TRUE(Write(b, WithStream(*second, "mine")).ok());
  auto c = Make();
  auto third = Open(c);
  ASSERT_TRUE(third.ok());
  ASSERT_EQ(third->streams_size(), 1);
  EXPECT_EQ(third->streams(0).name(), "mine");
}

TEST_F(RegistryStoreTest, LongLogsAreRolledAndTheLastButOneKept) {
  auto a = Make({.file_bytes_max = 500});
  auto first = Open(a);
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Write(a, WithStream(*first, "stream-" + std::to_string(i))).ok());
  }
  time_.RunFor(Duration::Seconds(1));
  const auto names = disk_.PeekNames("registry");
  EXPECT_EQ(names.size(), 2u);
  EXPECT_GT(names.back(), "0000000003.log");
  auto b = Make({.file_bytes_max = 500});
  auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->streams(0).name(), "stream-99");
  EXPECT_EQ(second->scheduler_incarnation(), 2u);
  EXPECT_TRUE(IsFailedPrecondition(Write(a, *first)));
}

TEST_F(RegistryStoreTest, WhatIsWrittenIsReadAgainHoweverMuchItIs) {
  auto a = Make();
  auto first = Open(a);
  ASSERT_TRUE(first.ok()) << first.status();
  v1::RegistrySnapshot large = *first;
  for (int i = 0; i < 1500; ++i) {
    auto* stream = large.add_streams();
    stream->set_name("s" + std::to_string(i));
    stream->add_destinations(std::string(48 << 10, 'x'));
  }
  ASSERT_TRUE(Write(a, large).ok());
  auto b = Make();
  const auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->streams_size(), 1500);
}

TEST_F(RegistryStoreTest, WhatCouldNotBeReadAgainIsNotWritten) {
  auto a = Make({.snapshot_bytes_max = 100});
  auto first = Open(a);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(Write(a, WithStream(*first, "flights")).ok());
  const auto refused = Write(a, WithStream(*first, std::string(100, 'x')));
  EXPECT_TRUE(IsResourceExhausted(refused)) << refused;
  auto b = Make();
  const auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->streams_size(), 1);
  EXPECT_EQ(second->streams(0).name(), "flights");
}

TEST_F(RegistryStoreTest, ASnapshotThatSaysItIsLongerThanAnyIsDamageAndNoTornEnd) {
  std::string header = "TCR1";
  const auto put = [&header](uint32_t v) {
    for (int i = 0; i < 4; ++i) header.push_back(static_cast<char>(v >> (8 * i)));
  };
  put((1u << 30) + 1);
  put(0);
  put(Crc32c(header));
  EXPECT_TRUE(IsDataLoss(ParseRegistryLog(header, "f").status()));
}

TEST_F(RegistryStoreTest, TornEndsAreIgnoredAndDamageInTheMiddleIsNot) {
  v1::RegistrySnapshot s;
  s.set_sequence(1);
  const std::string one = EncodeSnapshot(s);
  s.set_sequence(2);
  const std::string two = EncodeSnapshot(s);
  for (size_t cut = 0; cut < two.size(); ++cut) {
    const auto content = ParseRegistryLog(one + two.substr(0, cut), "f");
    ASSERT_TRUE(content.ok());
    EXPECT_EQ(content->last->sequence(), 1u);
    EXPECT_EQ(content->torn_bytes, static_cast<int64_t>(cut));
  }
  for (size_t at = 0; at < one.size(); ++at) {
    std::string damaged = one + two;
    damaged[at] ^= 4;
    const auto content = ParseRegistryLog(damaged, "registry/x.log");
    ASSERT_TRUE(IsDataLoss(content.status())) << at;
    EXPECT_NE(content.status().message().find("registry/x.log"), std::string::npos);
    EXPECT_NE(content.status().message().find("byte 0"), std::string::npos);
    damaged = one + two;
    damaged[one.size() + at % two.size()] ^= 4;
    EXPECT_TRUE(ParseRegistryLog(damaged, "f").ok()) << "the last snapshot may be torn";
  }
  EXPECT_TRUE(ParseRegistryLog("", "f").ok());
}

// Each one is the whole state: of those before the last only their checksums count.
TEST_F(RegistryStoreTest, OnlyTheLastSnapshotIsLookedInto) {
  const google::protobuf::LogSilencer quiet;
  v1::RegistrySnapshot s;
  s.set_sequence(1);
  const std::string one = EncodeSnapshot(s);
  const std::string unreadable = EncodeSnapshot(WithStream(s, "\xff"));
  s.set_sequence(2);
  const std::string two = EncodeSnapshot(s);
  const auto content = ParseRegistryLog(one + unreadable + two, "f");
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->last->sequence(), 2u);
  EXPECT_EQ(content->snapshots, 3);
  // As the last one it is no snapshot.
  for (const std::string& tail : {std::string(), two.substr(0, two.size() - 1)}) {
    const auto torn = ParseRegistryLog(one + unreadable + tail, "f");
    ASSERT_TRUE(torn.ok()) << torn.status();
    EXPECT_EQ(torn->last->sequence(), 1u);
    EXPECT_EQ(torn->snapshots, 1);
    EXPECT_EQ(torn->torn_bytes, static_cast<int64_t>(unreadable.size() + tail.size()));
  }
  EXPECT_FALSE(ParseRegistryLog(unreadable, "f")->last.has_value());
}

TEST_F(RegistryStoreTest, NothingFollowsATornSnapshot) {
  auto a = Make();
  ASSERT_TRUE(Open(a).ok());
  auto b = Make();
  std::unique_ptr<storage::AppendFile> raw;
  b.loop->Post(scope_.Bind([&] {
    b.files->OpenFencing("registry", "0000000001.log", scope_.Bind([&](auto file) {
      raw = std::move(*file);
      raw->AppendAt(raw->committed_length(), "TCR1torn", scope_.Bind([](auto) {}));
    }));
  }));
  time_.RunFor(Duration::Seconds(5));
  auto c = Make();
  auto opened = Open(c);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->scheduler_incarnation(), 2u);
  EXPECT_EQ(c.registry->file_name(), "0000000002.log");
  auto d = Make();
  opened = Open(d);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->scheduler_incarnation(), 3u);
}

TEST_F(RegistryStoreTest, AWriteThatFindsNoRoomWaitsForIt) {
  auto a = Make();
  WriteOnAFullDisk(a, "flights");
  time_.RunFor(Duration::Seconds(60));
  EXPECT_FALSE(written_.has_value());
  EXPECT_NE(a.registry->no_room().message().find("registry/0000000001.log"), std::string::npos);
  // Enough to open it again, and not to write.
  disk_.SetOptions(Full(disk_, 100));
  time_.RunFor(Duration::Seconds(60));
  EXPECT_FALSE(written_.has_value());
  disk_.SetOptions({});
  ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(10)));
  EXPECT_TRUE(written_->ok()) << *written_;
  EXPECT_TRUE(a.registry->no_room().ok());
  ASSERT_TRUE(Write(a, WithStream({}, "last")).ok());
  auto b = Make();
  const auto opened = Open(b);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->scheduler_incarnation(), 2u) << "it is the same scheduler as before";
  EXPECT_EQ(opened->streams(0).name(), "last");
}

// The disk that was full fails in other ways before it is well: both when it is looked who has the
// file, and when that is opened.
TEST_F(RegistryStoreTest, AFileThatCantBeOpenedAgainForAWhileIsWaitedFor) {
  for (const double rate : {0.3, 0.7, 1.0}) {
    SCOPED_TRACE(rate);
    auto a = Make();
    WriteOnAFullDisk(a, "flights");
    storage::FakeDiskOptions failing;
    failing.open_error_rate = rate;
    disk_.SetOptions(failing);
    time_.RunFor(Duration::Seconds(60));
    if (rate == 1.0) {
      EXPECT_FALSE(written_.has_value()) << *written_;
      EXPECT_TRUE(IsUnavailable(a.registry->no_room())) << a.registry->no_room();
    }
    disk_.SetOptions({});
    ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(10)));
    EXPECT_TRUE(written_->ok()) << *written_;
    EXPECT_TRUE(a.registry->no_room().ok());
  }
}

TEST_F(RegistryStoreTest, WhoWaitsForRoomWhileTheFileGoesEnds) {
  auto a = Make();
  WriteOnAFullDisk(a, "flights");
  ASSERT_TRUE(disk_.Remove("registry", "0000000001.log").ok());
  ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(20)));
  EXPECT_TRUE(IsFailedPrecondition(*written_)) << *written_;
}

TEST_F(RegistryStoreTest, ARollThatFindsNoRoomForTheNextFileWaitsForIt) {
  auto a = Make({.file_bytes_max = 200});
  const auto first = Open(a);
  ASSERT_TRUE(first.ok()) << first.status();
  while (a.registry->file_name() == "0000000001.log") {
    disk_.SetOptions(Full(disk_, 99));  // snapshots, no file
    std::optional<Status> written;
    a.loop->Post(scope_.Bind([&] {
      a.registry->Write(WithStream(*first, "flights"),
                        scope_.Bind([&](const Status& s) { written = s; }));
    }));
    time_.RunFor(Duration::Seconds(20));
    if (written) continue;
    EXPECT_TRUE(IsResourceExhausted(a.registry->no_room()));
    disk_.SetOptions({});
    ASSERT_TRUE(time_.RunUntil([&] { return written.has_value(); }, Duration::Seconds(10)));
    EXPECT_TRUE(written->ok()) << *written;
  }
  auto b = Make();
  const auto opened = Open(b);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->streams(0).name(), "flights");
}

// A creation may have taken the name before it found no room.
TEST_F(RegistryStoreTest, ARollThatLeftTheNextFileHalfMadeGoesOnWithIt) {
  auto a = Make({.file_bytes_max = 1});
  WriteOnAFullDisk(a, "flights", false);
  time_.RunFor(Duration::Seconds(20));
  EXPECT_FALSE(written_.has_value());
  // The name, and no room to take the file over.
  disk_.SetOptions(Full(disk_, 0));
  time_.RunFor(Duration::Seconds(20));
  EXPECT_FALSE(written_.has_value());
  EXPECT_EQ(disk_.PeekNames("registry").size(), 2u);
  disk_.SetOptions({});
  ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(10)));
  EXPECT_TRUE(written_->ok()) << *written_;
  EXPECT_TRUE(a.registry->no_room().ok());
  EXPECT_EQ(a.registry->file_name(), "0000000002.log");
  auto b = Make();
  const auto opened = Open(b);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->scheduler_incarnation(), 2u);
  EXPECT_EQ(opened->streams(0).name(), "flights");
}

// What was half made is whose snapshot is in it first.
TEST_F(RegistryStoreTest, WhoTookOverTheFileThatARollLeftHalfMadeKeepsIt) {
  auto a = Make({.file_bytes_max = 1});
  WriteOnAFullDisk(a, "old", false);
  a.loop->Pause();
  disk_.SetOptions({});
  auto b = Make();
  const auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(b.registry->file_name(), "0000000002.log");
  a.loop->Resume();
  ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(20)));
  EXPECT_TRUE(IsFailedPrecondition(*written_)) << *written_;
  EXPECT_TRUE(Write(b, WithStream(*second, "new")).ok()) << "it was not fenced in turn";
}

TEST_F(RegistryStoreTest, AnOpeningThatFindsNoRoomWaitsForIt) {
  for (const int64_t room : {0, 99, 100, 110}) {  // for no file; or for one, and no snapshot
    auto a = Make();
    const auto first = Open(a);
    ASSERT_TRUE(first.ok()) << first.status();
    a.loop->Kill();
    disk_.SetOptions(Full(disk_, room));
    auto b = Make();
    std::optional<Result<v1::RegistrySnapshot>> opened;
    b.loop->Post(scope_.Bind(
        [&] { b.registry->Open(scope_.Bind([&](auto r) { opened = std::move(r); })); }));
    time_.RunFor(Duration::Seconds(30));
    EXPECT_FALSE(opened.has_value()) << room;
    EXPECT_TRUE(IsResourceExhausted(b.registry->no_room())) << room;
    disk_.SetOptions({});
    ASSERT_TRUE(time_.RunUntil([&] { return opened.has_value(); }, Duration::Seconds(10)));
    ASSERT_TRUE(opened->ok()) << opened->status();
    EXPECT_EQ((*opened)->scheduler_incarnation(), first->scheduler_incarnation() + 1);
    EXPECT_TRUE(b.registry->no_room().ok());
  }
}

// It can't be told by the epoch: a fence of its own may have raised it.
TEST_F(RegistryStoreTest, WhoWaitsForRoomAndWasFencedEnds) {
  auto a = Make();
  WriteOnAFullDisk(a, "old");
  a.loop->Pause();
  disk_.SetOptions({});
  auto b = Make();
  const auto second = Open(b);
  ASSERT_TRUE(second.ok()) << second.status();
  a.loop->Resume();
  ASSERT_TRUE(time_.RunUntil([&] { return written_.has_value(); }, Duration::Seconds(20)));
  EXPECT_TRUE(IsFailedPrecondition(*written_)) << *written_;
  EXPECT_TRUE(Write(b, WithStream(*second, "new")).ok()) << "it was not fenced in turn";
}

// Schedulers come, write, roll and are killed or left behind at any moment, on a disk that is slow
// and loses answers, and is full now and then: incarnations never repeat, and what was acknowledged
// is never lost.
TEST_F(RegistryStoreTest, RandomDuelsNeverForkOrLose) {
  int acknowledged_total = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    sim::VirtualTime time(seed);
    auto disk_loop = time.MakeLoop("disk");
    storage::FakeDiskOptions options;
    options.append_unknown_rate = 0.03;
    options.request.mean_extra = Duration::Millis(2);
    options.answer_timeout = Duration::Millis(50);
    storage::FakeDisk disk(disk_loop.get(), seed, options);
    Rng rng(seed);
    std::vector<std::unique_ptr<Process>> processes;
    std::map<uint64_t, int> incarnations;
    int acknowledged = 0;  // the number in the stream's name
    const auto start = [&] {
      auto p = std::make_unique<Process>();
      p->loop = time.MakeLoop("s");
      p->files = std::make_unique<storage::FakeStore>(&disk, p->loop.get());
      p->registry = std::make_unique<RegistryStore>(
          *p->loop, *p->files,
          RegistryStore::Options{.file_bytes_max = 400,
                                 .retry = Duration::Millis(5),
                                 .retry_max = Duration::Millis(20)});
      Process* raw = p.get();
      processes.push_back(std::move(p));
      raw->loop->Post(scope_.Bind([&, raw] {
        raw->registry->Open(scope_.Bind([&, raw](Result<v1::RegistrySnapshot> opened) {
          if (!opened.ok()) return;
          ++incarnations[opened->scheduler_incarnation()];
          const int seen = opened->streams_size() == 0 ? 0 : std::stoi(opened->streams(0).name());
          ASSERT_GE(seen, acknowledged) << "an acknowledged snapshot was lost";
          // A chain of writes, each one greater.
          auto next = std::make_shared<std::function<void(int)>>();
          *next = [&, raw, weak = std::weak_ptr(next)](int number) {
            v1::RegistrySnapshot s;
            s.add_streams()->set_name(std::to_string(number));
            raw->registry->Write(s,
                                 scope_.Bind([&, number, next = weak.lock()](const Status& status) {
                                   if (!status.ok()) return;
                                   acknowledged = std::max(acknowledged, number);
                                   (*next)(number + 1);
                                 }));
          };
          (*next)(seen + 1);
        }));
      }));
    };
    for (int round = 0; round < 30; ++round) {
      if (rng.Chance(0.4)) start();
      if (seed % 2 == 0 && rng.Chance(0.3)) {
        storage::FakeDiskOptions now = options;
        if (rng.Chance(0.5)) {
          const storage::FakeDiskOptions full = Full(disk, rng.Between(0, 300));
          now.capacity_bytes = full.capacity_bytes;
          now.file_bytes = full.file_bytes;
          now.room_for_names = rng.Chance(0.5);
        }
        disk.SetOptions(now);
      }
      if (!processes.empty() && rng.Chance(0.2)) {
        processes[rng.Below(processes.size())]->loop->Kill();
      }
      if (!processes.empty() && rng.Chance(0.2)) {
        processes[rng.Below(processes.size())]->loop->Pause();
      }
      if (!processes.empty() && rng.Chance(0.2)) {
        processes[rng.Below(processes.size())]->loop->Resume();
      }
      time.RunFor(Duration::Micros(rng.Between(0, 40000)));
    }
    for (const auto& [incarnation, times] : incarnations) EXPECT_EQ(times, 1) << incarnation;
    acknowledged_total += acknowledged;
    for (auto& p : processes) p->loop->Kill();
    while (!processes.empty()) processes.pop_back();
  }
  EXPECT_GT(acknowledged_total, 1000) << "the test does not reach what it is about";
}

}  // namespace
}  // namespace tailcast::cell
