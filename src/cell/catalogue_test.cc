#include "tailcast/cell/catalogue.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {
namespace {

using stream::StreamIncarnation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::StreamConfig Stream(const std::string& name) {
  v1::StreamConfig s;
  s.set_name(name);
  s.set_source("us");
  s.add_destinations("eu");
  auto* edge = s.add_tree();
  edge->set_from("us");
  edge->set_to("eu");
  return s;
}

class CatalogueTest : public ::testing::Test {
 protected:
  const CatalogueOptions options_{
      .cell = "us", .known_cells = {"us", "eu", "asia"}, .peers = {"asia", "eu"}};
  v1::RegistrySnapshot durable_;
  Catalogue core_{options_, &durable_, 1};

  Result<v1::StreamConfig> Create(const v1::StreamConfig& stream) {
    auto made = core_.BeginCreate(stream, {}, WallTime::FromMicros(77));
    if (made.ok()) core_.FinishCreate(stream::IdOf(*made));
    return made;
  }
  // One that another cell is the source of.
  v1::StreamConfig Foreign(uint64_t incarnation) {
    v1::StreamConfig s;
    s.set_name("flights");
    s.set_incarnation(incarnation);
    s.set_source("eu");
    s.add_destinations("us");
    auto* edge = s.add_tree();
    edge->set_from("eu");
    edge->set_to("us");
    s.set_tree_version(1);
    s.set_shards(2);
    s.set_chunk_size(4096);
    return s;
  }
  // As the registry does when the state is written.
  const v1::DeletedStream& Written(int deleted) {
    core_.OnWritten(durable_, core_.OnTaken());
    return core_.deleted().at(IdOf(durable_.deleted(deleted)));
  }
};

TEST_F(CatalogueTest, ARecreatedStreamIsANewIncarnation) {
  const auto first = Create(Stream("flights"));
  ASSERT_TRUE(core_.DeleteStream("flights").ok());
  EXPECT_TRUE(IsNotFound(core_.DeleteStream("flights").status()));
  const auto second = Create(Stream("flights"));
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->incarnation(), second->incarnation());
  EXPECT_TRUE(IsNotFound(core_.InstallStream(*first).status())) << "the old one is gone";
  // Who was asked about the first one, and says yes now, does not mean this one.
  EXPECT_TRUE(IsFailedPrecondition(
      core_.DeleteStream("flights", stream::IdOf(*first).incarnation).status()));
  EXPECT_TRUE(core_.DeleteStream("flights", stream::IdOf(*second).incarnation).ok());
}

TEST_F(CatalogueTest, AReservedNameIsNoStreamAndNobodyElseGetsIt) {
  const auto made = core_.BeginCreate(Stream("flights"), {}, WallTime());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(core_.FindStream("flights"), nullptr);
  EXPECT_TRUE(IsAlreadyExists(core_.BeginCreate(Stream("flights"), {}, WallTime()).status()));
  // us > asia and us > eu: whose name is less goes on, so they wait for us to give up.
  EXPECT_TRUE(IsUnavailable(core_.AskName("flights", "eu")));
  EXPECT_TRUE(IsAlreadyExists(core_.AskName("flights", "zurich")));
  EXPECT_TRUE(core_.AskName("prices", "eu").ok());
  core_.AbortCreate(stream::IdOf(*made));
  EXPECT_TRUE(core_.AskName("flights", "eu").ok());
  EXPECT_TRUE(core_.changed());
}

TEST_F(CatalogueTest, ANewSchedulerDropsReservationsOfWhichNobodyWasTold) {
  ASSERT_TRUE(core_.BeginCreate(Stream("flights"), {}, WallTime()).ok());
  v1::RegistrySnapshot next = durable_;
  Catalogue anew(options_, &next, 2);
  EXPECT_TRUE(anew.changed());
  EXPECT_TRUE(anew.AskName("flights", "zurich").ok());
}

TEST_F(CatalogueTest, ANameThatIsTakenIsRefusedWithItsSource) {
  ASSERT_TRUE(core_.InstallStream(Foreign(5)).ok());
  EXPECT_THAT(core_.BeginCreate(Stream("flights"), {}, WallTime()).status().message(),
              HasSubstr("source is cell 'eu'"));
  // Whether it is still there is for eu to say.
  EXPECT_TRUE(IsUnavailable(core_.AskName("flights", "asia")));
  EXPECT_TRUE(IsUnavailable(core_.AskName("flights", "eu")));
  ASSERT_TRUE(Create(Stream("prices")).ok());
  EXPECT_THAT(core_.AskName("prices", "asia").message(), HasSubstr("source is cell 'us'"));
}

TEST_F(CatalogueTest, OfTwoChangesOfATreeAtOnceTheSecondIsRefused) {
  const auto made = Create(Stream("flights"));
  ASSERT_TRUE(made.ok());
  v1::StreamConfig star = *made, chain = *made;
  star.set_tree_version(2);
  auto* edge = star.add_tree();
  edge->set_from("us");
  edge->set_to("asia");
  chain.set_tree_version(2);
  edge = chain.add_tree();
  edge->set_from("eu");
  edge->set_to("asia");
  ASSERT_TRUE(core_.InstallStream(star).ok());
  const Status second = core_.InstallStream(chain).status();
  EXPECT_TRUE(IsAborted(second)) << second;
  EXPECT_THAT(second.message(), HasSubstr("version 2"));
  EXPECT_TRUE(core_.InstallStream(star).ok()) << "the first, whose answer was lost, again";
  star.set_tree_version(3);
  ASSERT_TRUE(core_.InstallStream(star).ok());
  EXPECT_TRUE(IsAborted(core_.InstallStream(chain).status())) << "too late altogether";
}

TEST_F(CatalogueTest, OnlyTheSourceDeletes) {
  ASSERT_TRUE(core_.InstallStream(Foreign(5)).ok());
  const Status refused = core_.DeleteStream("flights").status();
  EXPECT_TRUE(IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("cell 'eu'"));
  EXPECT_NE(core_.FindStream("flights"), nullptr);
  const auto mine = Create(Stream("prices"));
  EXPECT_TRUE(IsFailedPrecondition(core_.RemoveStream(stream::IdOf(*mine), 1).status()));
}

TEST_F(CatalogueTest, TheSourceRemembersWhomItHasToTellAndWhatIsOnDisk) {
  const auto made = Create(Stream("flights"));
  const stream::StreamId id = stream::IdOf(*made);
  ASSERT_TRUE(core_.DeleteStream("flights").ok());
  EXPECT_EQ(core_.deleted().size(), 0) << "not durable yet";
  EXPECT_THAT(Written(0).cells_to_tell(), ElementsAre("asia", "eu"));
  EXPECT_TRUE(Written(0).on_disk());
  core_.OnTold(id, "asia");
  core_.OnTold(id, "asia");
  core_.SetOnDisk(id, false);
  EXPECT_THAT(Written(0).cells_to_tell(), ElementsAre("eu"));
  EXPECT_FALSE(Written(0).on_disk());
  EXPECT_FALSE(core_.changed());
}

TEST_F(CatalogueTest, WhatTheSourceHasDeletedDoesNotComeBackEvenIfItNeverWasHere) {
  const v1::StreamConfig s = Foreign(5);
  const auto removed = core_.RemoveStream(stream::IdOf(s), s.shards());
  ASSERT_TRUE(removed.ok());
  EXPECT_FALSE(removed->has_value());
  EXPECT_TRUE(IsNotFound(core_.InstallStream(s).status()));
  EXPECT_EQ(Written(0).shards(), 2);
  EXPECT_EQ(Written(0).cells_to_tell_size(), 0) << "the source tells them all";
  // Said twice: recorded once.
  ASSERT_TRUE(core_.RemoveStream(stream::IdOf(s), s.shards()).ok());
  EXPECT_EQ(durable_.deleted_size(), 1);
}

TEST_F(CatalogueTest, DeletionsOfWhichSomethingIsLeftAreNeverForgotten) {
  const stream::StreamId first{"flights", StreamIncarnation{1}};
  ASSERT_TRUE(core_.RemoveStream(first, 1).ok());
  for (uint64_t i = 2; i < 10010; ++i) {
    const stream::StreamId id{"flights", StreamIncarnation{i}};
    ASSERT_TRUE(core_.RemoveStream(id, 1).ok());
    core_.SetOnDisk(id, false);
  }
  EXPECT_TRUE(core_.WasDeleted(first));
  EXPECT_FALSE(core_.WasDeleted({"flights", StreamIncarnation{2}}));
  EXPECT_LE(durable_.deleted_size(), 10003);
}

TEST_F(CatalogueTest, BadStreamsAreRefusedByField) {
  const auto refused = [&](auto change, const std::string& what) {
    auto s = Stream("flights");
    change(s);
    const auto result = Create(s);
    EXPECT_THAT(result.status().message(), HasSubstr(what));
  };
  refused([](auto& s) { s.set_name("Flights!"); }, "stream name 'Flights!'");
  refused([](auto& s) { s.set_shards(-1); }, "stream.shards");
  refused([](auto& s) { s.set_chunk_size(100); }, "stream.chunk_size");
  refused([](auto& s) { s.set_source("uss"); }, "did you mean 'us'");
  refused([](auto& s) { s.set_source("eu"); }, "names 'eu', which is the source");
  refused([](auto& s) { s.set_destinations(0, "mars"); }, "'mars' is no cell");
  refused([](auto& s) { s.add_destinations("eu"); }, "twice");
  refused([](auto& s) { s.add_destinations("asia"); }, "does not reach the destination 'asia'");
  refused([](auto& s) { *s.add_tree() = s.tree(0); }, "enters 'eu' twice");
  refused([](auto& s) { s.mutable_tree(0)->set_from("asia"); }, "'eu' is not reached");
}

TEST_F(CatalogueTest, HigherTreeVersionsReplaceLowerOnes) {
  auto s = Foreign(5);
  s.set_tree_version(2);
  ASSERT_TRUE(core_.InstallStream(s).ok());
  s.set_tree_version(1);
  EXPECT_EQ(core_.InstallStream(s)->tree_version(), 2u);
  s.set_tree_version(3);
  EXPECT_EQ(core_.InstallStream(s)->tree_version(), 3u);
  s.set_tree_version(4);
  s.set_shards(1);
  EXPECT_TRUE(IsInvalidArgument(core_.InstallStream(s).status()));
}

std::string Text(const google::protobuf::RepeatedPtrField<v1::TreeEdge>& edges) {
  std::string text;
  for (const auto& edge : edges) text += edge.from() + ">" + edge.to() + " ";
  return text;
}

TEST_F(CatalogueTest, ANewTreeBeginsAChangeFromTheTreeThatWasCarriedOutLast) {
  const auto tree = [](v1::StreamConfig s, uint64_t version,
                       const std::vector<std::pair<std::string, std::string>>& edges) {
    s.set_tree_version(version);
    s.clear_tree();
    for (const auto& [from, to] : edges) {
      auto* edge = s.add_tree();
      edge->set_from(from);
      edge->set_to(to);
    }
    return s;
  };
  auto s = Stream("flights");
  s.clear_destinations();
  for (const char* cell : {"eu", "asia"}) s.add_destinations(cell);
  s = *Create(tree(s, 1, {{"us", "eu"}, {"eu", "asia"}}));
  EXPECT_FALSE(s.has_change()) << "a new stream has nothing to change from";
  EXPECT_EQ(s.settled_version(), 1u);
  s = *core_.InstallStream(tree(s, 2, {{"us", "eu"}, {"us", "asia"}}));
  EXPECT_EQ(Text(s.change().base()), "us>eu eu>asia ");
  EXPECT_EQ(s.settled_version(), 2u) << "the source is settled by itself";
  // A third tree before the second was carried out: asia may be fed over any of the three edges.
  s = *core_.InstallStream(tree(s, 3, {{"us", "asia"}, {"asia", "eu"}}));
  EXPECT_EQ(Text(s.change().base()), "us>eu eu>asia ");
  EXPECT_EQ(Text(s.change().abandoned()), "") << "us>asia is in the tree again";
  s = *core_.InstallStream(tree(s, 4, {{"us", "eu"}, {"eu", "asia"}}));
  EXPECT_EQ(Text(s.change().base()), "us>eu eu>asia ");
  EXPECT_EQ(Text(s.change().abandoned()), "us>asia asia>eu ");
  // News of an older tree change nothing.
  core_.SetFinished("flights", stream::TreeVersion{3});
  EXPECT_TRUE(core_.FindStream("flights")->has_change());
  core_.SetFinished("flights", stream::TreeVersion{4});
  EXPECT_FALSE(core_.FindStream("flights")->has_change()) << "carried out";
  EXPECT_TRUE(core_.changed());
  s = *core_.InstallStream(tree(s, 5, {{"us", "asia"}, {"us", "eu"}}));
  EXPECT_EQ(Text(s.change().base()), "us>eu eu>asia ");
  EXPECT_EQ(Text(s.change().abandoned()), "");
}

TEST_F(CatalogueTest, AnotherCellKeepsWhatItIsToldOfTheChange) {
  auto s = Stream("flights");
  s.set_source("eu");
  s.clear_destinations();
  s.add_destinations("us");
  s.mutable_tree(0)->set_from("eu");
  s.mutable_tree(0)->set_to("us");
  while (s.tree_size() > 1) s.mutable_tree()->RemoveLast();
  s.set_incarnation(5);
  s.set_shards(1);
  s.set_chunk_size(4096);
  s.set_tree_version(2);
  s.mutable_change()->add_base()->CopyFrom(s.tree(0));
  s.set_settled_version(99);  // the neighbour's, not ours
  EXPECT_EQ(core_.InstallStream(s)->settled_version(), 0u);
  EXPECT_EQ(core_.InstallStream(s, {.settled = true})->settled_version(), 2u);
  EXPECT_TRUE(core_.FindStream("flights")->has_change());
  auto old = s;
  old.set_tree_version(1);
  core_.InstallStream(old, {.settled = true, .complete = true}).status().ok();
  EXPECT_TRUE(core_.FindStream("flights")->has_change()) << "said of another tree";
  core_.SetFinished("flights", stream::TreeVersion{2});
  EXPECT_TRUE(core_.FindStream("flights")->has_change()) << "other cells may not be there yet";
  EXPECT_FALSE(core_.InstallStream(s, {.settled = true, .complete = true})->has_change());
  s.set_tree_version(3);
  EXPECT_EQ(core_.InstallStream(s)->settled_version(), 2u) << "of the tree before";
}

TEST_F(CatalogueTest, NoIncarnationReplacesAnotherWhateverTheClocksSay) {
  for (int64_t created_us : {1, 100, 200}) {
    v1::StreamConfig other = Foreign(6);
    other.set_created_us(created_us);
    v1::StreamConfig known = Foreign(5);
    known.set_created_us(100);
    ASSERT_TRUE(core_.InstallStream(known).ok());
    EXPECT_TRUE(IsFailedPrecondition(core_.InstallStream(other).status()));
    EXPECT_EQ(core_.FindStream("flights")->incarnation(), 5u);
  }
  ASSERT_TRUE(core_.RemoveStream(stream::IdOf(Foreign(5)), 2).ok());
  EXPECT_TRUE(core_.InstallStream(Foreign(6)).ok());
}

TEST_F(CatalogueTest, RetentionIsTheSourcesToChange) {
  const v1::StreamConfig made = *Create(Stream("flights"));
  v1::Retention retention;
  retention.set_shard_bytes_max(1000);
  retention.set_drop(true);
  const auto changed = core_.SetRetention("flights", retention);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->retention().shard_bytes_max(), 1000);
  EXPECT_EQ(changed->retention().version(), made.retention().version() + 1);
  core_.SetLeftOut(stream::IdOf(made), "eu", true);
  core_.SetLeftOut(stream::IdOf(made), "eu", true);
  ASSERT_EQ(core_.FindStream("flights")->left_out_size(), 1);
  // An operator's new tree says nothing of either.
  v1::StreamConfig rerouted = made;
  rerouted.set_tree_version(2);
  ASSERT_TRUE(core_.InstallStream(rerouted).ok());
  EXPECT_EQ(core_.FindStream("flights")->retention().shard_bytes_max(), 1000);
  EXPECT_EQ(core_.FindStream("flights")->left_out_size(), 1);
  core_.SetLeftOut(stream::IdOf(made), "eu", false);
  EXPECT_EQ(core_.FindStream("flights")->left_out_size(), 0);

  retention.set_shard_bytes_max(0);
  EXPECT_TRUE(IsInvalidArgument(core_.SetRetention("flights", retention).status()));
  EXPECT_TRUE(IsNotFound(core_.SetRetention("flight", v1::Retention()).status()));
}

// Files are deleted by it: only when it is durable, and of a stream that is there.
TEST_F(CatalogueTest, AFloorIsWrittenBeforeAnythingIsDoneByIt) {
  const stream::StreamId id = stream::IdOf(*Create(Stream("flights")));
  core_.RaiseFloor({id, 1}, 9);
  EXPECT_EQ(core_.floors().Floor({id, 1}), 9);
  EXPECT_EQ(core_.WrittenFloor({id, 1}), 1);
  EXPECT_TRUE(core_.written_floors().empty());
  core_.OnWritten(durable_, core_.OnTaken());
  EXPECT_EQ(core_.WrittenFloor({id, 1}), 9);
  ASSERT_TRUE(core_.DeleteStream("flights").ok());
  core_.RaiseFloor({id, 1}, 12);
  EXPECT_FALSE(core_.Trim({id, 0}, 3));
  EXPECT_EQ(durable_.floors_size(), 0);
  core_.OnWritten(durable_, core_.OnTaken());
  EXPECT_EQ(core_.WrittenFloor({id, 1}), 1);
}

TEST_F(CatalogueTest, OfTwoChangesOfRetentionAtOnceTheSecondIsRefused) {
  const v1::StreamConfig made = *Create(Stream("flights"));
  v1::Retention one = made.retention(), other = made.retention();
  one.set_age_max_us(5);
  other.set_shard_bytes_max(6);
  ASSERT_TRUE(core_.SetRetention("flights", one).ok());
  EXPECT_TRUE(IsAborted(core_.SetRetention("flights", other).status()));
  EXPECT_EQ(core_.FindStream("flights")->retention().age_max_us(), 5);
}

TEST_F(CatalogueTest, WhoIsNotInTheNewTreeIsNotLeftOutOfIt) {
  const v1::StreamConfig made = *Create(Stream("flights"));
  core_.SetLeftOut(stream::IdOf(made), "eu", true);
  v1::StreamConfig rerouted = made;
  rerouted.set_tree_version(2);
  rerouted.mutable_tree(0)->set_to("asia");
  rerouted.set_destinations(0, "asia");
  const auto installed = core_.InstallStream(rerouted);
  ASSERT_TRUE(installed.ok()) << installed.status();
  EXPECT_EQ(installed->left_out_size(), 0);
}

TEST_F(CatalogueTest, ElsewhereTheNewerRetentionCounts) {
  v1::StreamConfig stream = Foreign(5);
  stream.mutable_retention()->set_version(2);
  stream.mutable_retention()->set_age_max_us(7);
  ASSERT_TRUE(core_.InstallStream(stream).ok());
  EXPECT_TRUE(IsFailedPrecondition(core_.SetRetention(stream.name(), v1::Retention()).status()));
  v1::StreamConfig late = Foreign(5);
  late.mutable_retention()->set_version(1);
  ASSERT_TRUE(core_.InstallStream(late).ok());
  EXPECT_EQ(core_.FindStream(stream.name())->retention().age_max_us(), 7);
  late.mutable_retention()->set_version(3);
  ASSERT_TRUE(core_.InstallStream(late).ok());
  EXPECT_EQ(core_.FindStream(stream.name())->retention().age_max_us(), 0);
}

TEST_F(CatalogueTest,
       StreamsThatTakeMoreThanTheStateMayHaveAreRefusedAndChangesOfTreesHaveMoreRoom) {
  CatalogueOptions options = options_;
  options.state_bytes_max = 400;
  v1::RegistrySnapshot durable;
  Catalogue core(options, &durable, 1);
  int made = 0;
  for (;; ++made) {
    auto stream =
        core.BeginCreate(Stream("s" + std::to_string(made)), {}, WallTime::FromMicros(77));
    if (!stream.ok()) {
      EXPECT_TRUE(IsResourceExhausted(stream.status())) << stream.status();
      EXPECT_THAT(stream.status().message(), HasSubstr("400 are its limit"));
      break;
    }
    core.FinishCreate(stream::IdOf(*stream));
    ASSERT_LE(durable.ByteSizeLong(), 404u);  // tag and length of the last
  }
  EXPECT_GT(made, 2);
  // The same of one that another cell has made.
  int installed = 0;
  for (;; ++installed) {
    v1::StreamConfig foreign = Foreign(5);
    foreign.set_name("f" + std::to_string(installed));
    const Status status = core.InstallStream(foreign).status();
    if (!status.ok()) {
      EXPECT_TRUE(IsResourceExhausted(status)) << status;
      break;
    }
  }
  EXPECT_LE(installed, 1) << "a small one may still fit";
  ASSERT_LE(durable.ByteSizeLong(), 404u);
  int rerouted = 0;
  for (; rerouted < 100; ++rerouted) {
    v1::StreamConfig next = *core.FindStream("s" + std::to_string(rerouted % made));
    next.set_tree_version(next.tree_version() + 1);
    next.clear_destinations();
    next.clear_tree();
    auto* edge = next.add_tree();
    edge->set_from("us");
    edge->set_to(rerouted / made % 2 == 0 ? "asia" : "eu");
    next.add_destinations(edge->to());
    if (const auto status = core.InstallStream(next).status(); !status.ok()) {
      EXPECT_TRUE(IsResourceExhausted(status)) << status;
      break;
    }
    ASSERT_LE(durable.ByteSizeLong(), 1210u);
  }
  EXPECT_GE(rerouted, made) << "each may change";
}

}  // namespace
}  // namespace tailcast::cell
