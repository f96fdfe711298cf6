#include "tailcast/scheduler/registry_service.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RegistryServiceTest : public ::testing::Test {
 protected:
  struct Owner : RegistryService::Owner {
    void OnProcessesChanged() override { events.emplace_back("processes"); }
    void OnCatalogueChanged(const cell::CatalogueChanges& changed) override {
      for (const std::string& name : changed.streams) events.push_back("changed " + name);
    }
    void OnStreamRemoved(const v1::StreamConfig& stream) override {
      events.push_back("removed " + stream.name());
    }
    void Reserve(const std::string& stream, Callback<void(Status)> done) override {
      events.push_back("reserve " + stream);
      reserved = std::move(done);
    }
    void OnRegistryLost(const Status&) override { events.emplace_back("lost"); }
    std::vector<std::string> events;
    Callback<void(Status)> reserved;
  };
  // A scheduler's process.
  struct Process {
    explicit Process(RegistryServiceTest& test, Duration view_grace = Duration())
        : loop(test.time_.MakeLoop("scheduler")), store(&test.disk_, loop.get()) {
      RegistryServiceOptions options;
      options.registry.cell = "a";
      options.view_grace = view_grace;
      service = std::make_unique<RegistryService>(*loop, store, options, owner);
    }
    std::unique_ptr<sim::SimLoop> loop;
    storage::FakeStore store;
    Owner owner;
    std::unique_ptr<RegistryService> service;
  };
  using Answer = std::optional<Result<std::string>>;
  using Method = void (RegistryService::*)(const std::string&, rpc::Responder);

  void Open(Process& p) {
    std::optional<Status> opened;
    p.service->Open(scope_.Bind([&](const Status& status) { opened = status; }));
    ASSERT_TRUE(time_.RunUntil([&] { return opened.has_value(); }, Duration::Seconds(10)));
    ASSERT_TRUE(opened->ok()) << *opened;
    bool written = false;
    p.service->Persist(scope_.Bind([&](const Status&) { written = true; }));
    ASSERT_TRUE(time_.RunUntil([&] { return written; }, Duration::Seconds(10)));
    p.owner.events.clear();
    p.service->Begin();
  }
  void Call(Process& p, Method method, const std::string& request, Answer& answer) {
    (p.service.get()->*method)(
        request, scope_.Bind([&](Result<std::string> result) { answer = std::move(result); }));
  }
  // In the newest file of the log.
  int64_t Snapshots() {
    const std::string name = disk_.PeekNames("registry").back();
    return cell::ParseRegistryLog(*disk_.Peek("registry", name), name)->snapshots;
  }
  static std::string Poll(uint64_t known_version, int64_t wait_ms) {
    v1::GetViewRequest request;
    request.set_known_version(known_version);
    request.set_wait_ms(wait_ms);
    return request.SerializeAsString();
  }
  static std::string Reader(const std::string& name) {
    v1::RegisterRequest request;
    request.mutable_process()->set_name(name);
    request.mutable_process()->set_role(v1::ROLE_READER);
    request.mutable_process()->set_incarnation(7);
    request.mutable_process()->set_rpc_address("a:1");
    return request.SerializeAsString();
  }
  static std::string Flights() {
    v1::CreateStreamRequest request;
    request.mutable_stream()->set_name("flights");
    request.mutable_stream()->set_shards(1);
    request.mutable_stream()->set_chunk_size(4096);
    request.mutable_stream()->set_source("a");
    return request.SerializeAsString();
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> disk_loop_ = time_.MakeLoop("disk");
  storage::FakeDisk disk_{disk_loop_.get(), 1};
  Scope scope_;
};

TEST_F(RegistryServiceTest, ASchedulerThatWritesNothingEndsWhenItIsFenced) {
  Process before(*this), stopped(*this), after(*this);
  Open(stopped);
  stopped.loop->Pause();
  Open(before);
  time_.RunFor(Duration::Seconds(3));
  EXPECT_THAT(before.owner.events, IsEmpty());
  Open(after);
  time_.RunFor(Duration::Millis(1100));
  EXPECT_THAT(before.owner.events, ElementsAre("lost"));
  EXPECT_THAT(after.owner.events, IsEmpty());
  stopped.loop->Resume();
  time_.RunFor(Duration::Millis(10));
  EXPECT_THAT(stopped.owner.events, ElementsAre("lost")) << "at once after its stall";
}

TEST_F(RegistryServiceTest, WhoKnowsTheViewWaitsForTheNextOne) {
  Process p(*this);
  Open(p);
  Answer first, next;
  Call(p, &RegistryService::GetView, Poll(0, 0), first);
  ASSERT_TRUE(first && first->ok());
  const uint64_t version = rpc::Parse<v1::CellView>(**first)->version();
  Call(p, &RegistryService::GetView, Poll(version, 5000), next);
  time_.RunFor(Duration::Seconds(1));
  EXPECT_FALSE(next.has_value());
  Answer registered;
  Call(p, &RegistryService::Register, Reader("reader-0"), registered);
  ASSERT_TRUE(registered && registered->ok());
  EXPECT_FALSE(next.has_value()) << "in a later turn, with all that changes in this one";
  time_.RunFor(Duration::Millis(1));
  ASSERT_TRUE(next && next->ok());
  EXPECT_EQ(rpc::Parse<v1::CellView>(**next)->processes_size(), 1);
}

TEST_F(RegistryServiceTest, TheEndOfTheWaitBringsTheViewThatThereIs) {
  Process p(*this);
  Open(p);
  Answer answer;
  Call(p, &RegistryService::GetView, Poll(p.service->view().version(), 500), answer);
  time_.RunFor(Duration::Millis(499));
  EXPECT_FALSE(answer.has_value());
  time_.RunFor(Duration::Millis(1));
  ASSERT_TRUE(answer && answer->ok());
}

TEST_F(RegistryServiceTest, TheViewIsHeldBackUntilProcessesHadTimeToRegister) {
  Process p(*this, Duration::Millis(1500));
  Open(p);
  Answer answer;
  Call(p, &RegistryService::GetView, Poll(0, 0), answer);
  time_.RunFor(Duration::Millis(1400));
  EXPECT_FALSE(answer.has_value());
  time_.RunFor(Duration::Millis(200));
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok());
}

TEST_F(RegistryServiceTest, ALeaseThatRunsOutIsAChangeOfTheProcesses) {
  Process p(*this);
  Open(p);
  Answer answer;
  Call(p, &RegistryService::Register, Reader("reader-0"), answer);
  EXPECT_THAT(p.owner.events, ElementsAre("processes"));
  Call(p, &RegistryService::Register, Reader("reader-0"), answer);
  EXPECT_THAT(p.owner.events, ElementsAre("processes")) << "nothing changed";
  time_.RunFor(Duration::Seconds(5));
  EXPECT_THAT(p.owner.events, ElementsAre("processes", "processes"));
  EXPECT_EQ(p.service->view().processes_size(), 0);
}

TEST_F(RegistryServiceTest, AStreamIsAnsweredWhenItIsDurable) {
  Process p(*this);
  Open(p);
  Answer created;
  disk_.Freeze();
  Call(p, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(p.owner.events, ElementsAre()) << "nobody is asked before the name is reserved";
  disk_.Thaw();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(p.owner.events, ElementsAre("reserve flights"));
  disk_.Freeze();
  p.owner.reserved(OkStatus());
  time_.RunFor(Duration::Seconds(1));
  EXPECT_FALSE(created.has_value());
  EXPECT_EQ(p.service->view().streams_size(), 0);
  disk_.Thaw();
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(created && created->ok());
  EXPECT_EQ(p.service->view().streams_size(), 1);
}

TEST_F(RegistryServiceTest, ANameThatIsNotGivenIsFreeAgain) {
  Process p(*this);
  Open(p);
  Answer created;
  Call(p, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(1));
  p.owner.reserved(UnavailableError("no"));
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(created.has_value());
  EXPECT_TRUE(IsUnavailable(created->status()));
  EXPECT_EQ(p.service->view().streams_size(), 0);
  Answer again;
  Call(p, &RegistryService::CreateStream, Flights(), again);
  EXPECT_FALSE(again.has_value());
}

TEST_F(RegistryServiceTest, ADeletionIsToldWhenItIsDurable) {
  Process p(*this);
  Open(p);
  Answer created, deleted;
  Call(p, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(1));
  p.owner.reserved(OkStatus());
  time_.RunFor(Duration::Seconds(1));
  p.owner.events.clear();
  v1::DeleteStreamRequest request;
  request.set_name("flights");
  disk_.Freeze();
  Call(p, &RegistryService::DeleteStream, request.SerializeAsString(), deleted);
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(p.owner.events, ElementsAre());
  EXPECT_FALSE(deleted.has_value());
  disk_.Thaw();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_THAT(p.owner.events, ElementsAre("changed flights", "removed flights"));
  ASSERT_TRUE(deleted && deleted->ok());
}

TEST_F(RegistryServiceTest, ASchedulerThatWasReplacedGivesNoNameAndRecordsNoDeletion) {
  Process first(*this), second(*this);
  Open(first);
  Open(second);
  Answer name, removed;
  v1::AskNameRequest ask;
  ask.set_name("flights");
  ask.set_claimant("b");
  Call(first, &RegistryService::AskName, ask.SerializeAsString(), name);
  v1::RemoveStreamRequest remove;
  remove.set_name("flights");
  remove.set_incarnation(7);
  Call(first, &RegistryService::RemoveStream, remove.SerializeAsString(), removed);
  time_.RunFor(Duration::Seconds(5));
  ASSERT_TRUE(name.has_value() && removed.has_value());
  EXPECT_FALSE(name->ok());
  EXPECT_FALSE(removed->ok());
  Call(second, &RegistryService::AskName, ask.SerializeAsString(), name);
  time_.RunFor(Duration::Seconds(5));
  EXPECT_TRUE(name->ok()) << name->status();
}

TEST_F(RegistryServiceTest, ASecondSchedulerFencesTheFirst) {
  Process first(*this), second(*this);
  Open(first);
  Open(second);
  Answer created;
  Call(first, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(5));
  ASSERT_TRUE(created.has_value());
  EXPECT_FALSE(created->ok());
  EXPECT_THAT(first.owner.events, ElementsAre("lost"));
  first.service->End();
  Call(first, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(5));
  EXPECT_THAT(first.owner.events, ElementsAre("lost")) << "it is said once";
}

TEST_F(RegistryServiceTest, WhatWaitsForRoomIsWrittenInOneSnapshotHoweverMuchChanges) {
  Process p(*this);
  Open(p);
  Answer created;
  Call(p, &RegistryService::CreateStream, Flights(), created);
  time_.RunFor(Duration::Seconds(1));
  p.owner.reserved(OkStatus());
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(created && created->ok());
  const stream::ShardId shard{stream::IdOf(p.service->view().streams(0)), 0};
  storage::FakeDiskOptions full;
  full.capacity_bytes = disk_.image().bytes_used();
  disk_.SetOptions(full);
  const int64_t before = Snapshots();

  constexpr int kChanges = 1200;
  std::vector<int64_t> durable;  // the floor, when each was answered
  int refused = 0;
  for (int64_t floor = 2; floor < 2 + kChanges; ++floor) {
    p.service->catalogue().RaiseFloor(shard, floor);
    p.service->Persist(scope_.Bind([&, floor](const Status& status) {
      if (!status.ok()) {
        EXPECT_TRUE(IsResourceExhausted(status)) << status;
        ++refused;
        return;
      }
      durable.push_back(p.service->core().catalogue().WrittenFloor(shard));
      EXPECT_GE(durable.back(), floor) << "answered before it was durable";
    }));
    time_.RunFor(Duration::Millis(2));
  }
  EXPECT_TRUE(IsResourceExhausted(p.service->no_room()));
  EXPECT_TRUE(durable.empty());
  EXPECT_GT(refused, 0) << "no more than so many wait";
  EXPECT_LT(refused, kChanges / 2);
  EXPECT_EQ(p.service->core().catalogue().WrittenFloor(shard), 1);

  disk_.SetOptions({});
  time_.RunFor(Duration::Seconds(20));
  EXPECT_EQ(static_cast<int>(durable.size()) + refused, kChanges);
  EXPECT_TRUE(std::is_sorted(durable.begin(), durable.end()));
  EXPECT_EQ(p.service->core().catalogue().WrittenFloor(shard), 1 + kChanges)
      << "nothing is lost of those that could not wait";
  EXPECT_FALSE(p.service->core().NeedsWrite());
  EXPECT_EQ(Snapshots() - before, 2) << "the one that found no room, and one for all";
}

TEST_F(RegistryServiceTest, WithoutRoomAStreamThatIsWrittenIsInstalledAndAnotherIsNot) {
  Process p(*this);
  Open(p);
  v1::InstallStreamRequest request;
  v1::StreamConfig& stream = *request.mutable_stream();
  stream = rpc::Parse<v1::CreateStreamRequest>(Flights())->stream();
  stream.set_source("b");
  stream.set_incarnation(7);
  stream.set_tree_version(1);
  v1::TreeEdge* edge = stream.add_tree();
  edge->set_from("b");
  edge->set_to("a");
  Answer installed;
  Call(p, &RegistryService::InstallStream, request.SerializeAsString(), installed);
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(installed && installed->ok()) << installed->status();
  storage::FakeDiskOptions full;
  full.capacity_bytes = disk_.image().bytes_used();
  disk_.SetOptions(full);
  bool confirmed = false;
  p.service->Confirm(scope_.Bind([&](const Status&) { confirmed = true; }));
  time_.RunFor(Duration::Seconds(1));
  ASSERT_TRUE(IsResourceExhausted(p.service->CanChange())) << p.service->CanChange();

  Answer again, other;
  Call(p, &RegistryService::InstallStream, request.SerializeAsString(), again);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->ok()) << again->status();
  stream.set_tree_version(2);
  Call(p, &RegistryService::InstallStream, request.SerializeAsString(), other);
  ASSERT_TRUE(other.has_value());
  EXPECT_TRUE(IsResourceExhausted(other->status())) << other->status();
  EXPECT_EQ(p.service->view().streams(0).tree_version(), 1);
  disk_.SetOptions({});
  time_.RunFor(Duration::Seconds(20));
  EXPECT_TRUE(confirmed);
  EXPECT_EQ(p.service->view().streams(0).tree_version(), 2);
}

TEST_F(RegistryServiceTest, WhoWaitsForRoomIsToldWhenAnotherSchedulerHasTakenOver) {
  Process first(*this), second(*this);
  Open(first);
  storage::FakeDiskOptions full;
  full.capacity_bytes = disk_.image().bytes_used();
  disk_.SetOptions(full);
  std::vector<Status> told;
  for (int i = 0; i < 3; ++i) {
    first.service->Confirm(scope_.Bind([&](const Status& status) { told.push_back(status); }));
  }
  time_.RunFor(Duration::Seconds(1));
  EXPECT_TRUE(told.empty());
  first.loop->Pause();
  disk_.SetOptions({});
  Open(second);
  first.loop->Resume();
  time_.RunFor(Duration::Seconds(20));
  ASSERT_EQ(told.size(), 3u);
  for (const Status& status : told) EXPECT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_THAT(first.owner.events, ElementsAre("lost"));
}

TEST_F(RegistryServiceTest, WhoWaitsWhenTheSchedulerEndsIsToldSo) {
  Process p(*this);
  Open(p);
  Answer answer;
  Call(p, &RegistryService::GetView, Poll(p.service->view().version(), 5000), answer);
  p.service->End();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(IsUnavailable(answer->status())) << answer->status();
}

TEST_F(RegistryServiceTest, WhatDoesNotParseIsRefused) {
  Process p(*this);
  Open(p);
  for (const Method method :
       {&RegistryService::GetView, &RegistryService::Register, &RegistryService::CreateStream,
        &RegistryService::DeleteStream, &RegistryService::InstallStream,
        &RegistryService::RemoveStream, &RegistryService::AskName}) {
    Answer answer;
    Call(p, method, "\xff\xff", answer);
    ASSERT_TRUE(answer.has_value());
    EXPECT_TRUE(IsInvalidArgument(answer->status())) << answer->status();
    EXPECT_THAT(answer->status().message(), HasSubstr("not a valid"));
  }
}

}  // namespace
}  // namespace tailcast::scheduler
