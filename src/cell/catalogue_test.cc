#include "tailcast/cell/catalogue.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::cell {
namespace {

using stream::StreamIncarnation;
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
  v1::RegistrySnapshot durable_;
  Catalogue core_{{.cell = "us", .known_cells = {"us", "eu", "asia"}}, &durable_, 1};
};

TEST_F(CatalogueTest, ARecreatedStreamIsANewIncarnation) {
  const auto first = core_.CreateStream(Stream("flights"), {}, WallTime::FromMicros(1));
  ASSERT_TRUE(core_.DeleteStream("flights", StreamIncarnation::kNone).ok());
  EXPECT_TRUE(IsNotFound(core_.DeleteStream("flights", StreamIncarnation::kNone).status()));
  const auto second = core_.CreateStream(Stream("flights"), {}, WallTime::FromMicros(2));
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->incarnation(), second->incarnation());
  EXPECT_TRUE(IsNotFound(core_.InstallStream(*first).status())) << "the old one is gone";
}

TEST_F(CatalogueTest, BadStreamsAreRefusedByField) {
  const auto refused = [&](auto change, const std::string& what) {
    auto s = Stream("flights");
    change(s);
    const auto result = core_.CreateStream(s, {}, WallTime::FromMicros(1));
    EXPECT_THAT(result.status().message(), HasSubstr(what));
  };
  refused([](auto& s) { s.set_name("Flights!"); }, "stream name 'Flights!'");
  refused([](auto& s) { s.set_shards(-1); }, "stream.shards");
  refused([](auto& s) { s.set_chunk_size(100); }, "stream.chunk_size");
  refused([](auto& s) { s.set_source("uss"); }, "did you mean 'us'");
  refused([](auto& s) { s.set_source("eu"); }, "names 'eu' twice");
  refused([](auto& s) { s.set_destinations(0, "mars"); }, "'mars' is no cell");
  refused([](auto& s) { s.add_destinations("eu"); }, "twice");
  refused([](auto& s) { s.add_destinations("asia"); }, "does not reach the destination 'asia'");
  refused([](auto& s) { *s.add_tree() = s.tree(0); }, "enters 'eu' twice");
  refused([](auto& s) { s.mutable_tree(0)->set_from("asia"); }, "'eu' is not reached");
}

TEST_F(CatalogueTest, HigherTreeVersionsReplaceLowerOnes) {
  auto s = Stream("flights");
  s.set_incarnation(5);
  s.set_tree_version(2);
  s.set_shards(1);
  s.set_chunk_size(4096);
  ASSERT_TRUE(core_.InstallStream(s).ok());
  s.set_tree_version(1);
  EXPECT_EQ(core_.InstallStream(s)->tree_version(), 2u);
  s.set_tree_version(3);
  EXPECT_EQ(core_.InstallStream(s)->tree_version(), 3u);
  s.set_tree_version(4);
  s.set_shards(2);
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
  s = *core_.CreateStream(tree(s, 1, {{"us", "eu"}, {"eu", "asia"}}), {}, WallTime());
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

TEST_F(CatalogueTest, AYoungerIncarnationReplacesAnOlderOne) {
  auto s = Stream("flights");
  s.set_incarnation(5);
  s.set_tree_version(1);
  s.set_shards(1);
  s.set_chunk_size(4096);
  s.set_created_us(100);
  ASSERT_TRUE(core_.InstallStream(s).ok());
  auto younger = s;
  younger.set_incarnation(6);
  younger.set_created_us(200);
  EXPECT_EQ(core_.InstallStream(younger)->incarnation(), 6u);
  EXPECT_TRUE(IsNotFound(core_.InstallStream(s).status()));
}

TEST_F(CatalogueTest, FloorsOnlyRise) {
  const stream::ShardId shard{{"s", StreamIncarnation{1}}, 0};
  EXPECT_EQ(core_.Floor(shard), 1);
  core_.SetFloor(shard, 9);
  core_.SetFloor(shard, 4);
  EXPECT_EQ(core_.Floor(shard), 9);
  EXPECT_EQ(core_.Floor({{"s", StreamIncarnation{2}}, 0}), 1);
}

}  // namespace
}  // namespace tailcast::cell
