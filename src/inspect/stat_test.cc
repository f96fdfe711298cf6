#include "tailcast/inspect/stat.h"

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/strong.h"
#include "tailcast/inspect/text.h"

namespace tailcast::inspect {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

cache::RingConfig Ring() {
  cache::RingConfig ring;
  ring.configuration_id = cache::ConfigurationId{4};
  ring.epoch = cache::CacheEpoch{2};
  cache::Replica replica;
  replica.name = "cache-1";
  replica.rpc_address = "host:1";
  replica.incarnation = ProcessIncarnation{0xabcd'0000'0000'0001};
  ring.replicas.push_back(replica);
  return ring;
}

v1::CacheStatReply Good() {
  v1::CacheStatReply reply;
  reply.set_name("cache-1");
  reply.set_configuration_id(4);
  reply.set_generation(0xabcd'0000'0000'0001);
  reply.set_repair("has copied, and waits to be admitted");
  auto& values = *reply.mutable_values();
  values["epoch"] = 2;
  values["serving"] = 1;
  values["copied"] = 1;
  values["live"] = 123'456;
  values["live_bytes"] = 987'654'321;
  values["memory_bytes"] = 2'000'000'000;
  values["memory_used_bytes"] = 1'500'000'000;
  values["slabs_used"] = 1430;
  values["expired"] = 99'999'999;
  return reply;
}

ReplicaStat StatOf(const v1::CacheStatReply& reply, const cache::RingConfig& ring = Ring(),
                   Instance instance = Instance::kMetadata) {
  return MakeStat(instance, ring, {Result<v1::CacheStatReply>(reply)}).replicas.front();
}

TEST(StatTest, OneThatIsWellHasNoRemarks) {
  const ReplicaStat stat = StatOf(Good());
  EXPECT_EQ(stat.state, "whole");
  EXPECT_TRUE(stat.whole);
  EXPECT_THAT(stat.remarks, IsEmpty());
  EXPECT_EQ(stat.Value("live"), 123'456u);
}

TEST(StatTest, EachStateHasItsWordAndItsReason) {
  cache::RingConfig ring = Ring();
  ring.replicas[0].whole = false;
  v1::CacheStatReply reply = Good();
  EXPECT_EQ(StatOf(reply, ring).state, "copied");
  EXPECT_THAT(StatOf(reply, ring).remarks, ElementsAre(AllOf(HasSubstr("waits to be admitted"),
                                                             HasSubstr("votes do not count"))));
  (*reply.mutable_values())["copied"] = 0;
  EXPECT_EQ(StatOf(reply, ring).state, "idle");
  (*reply.mutable_values())["copying"] = 1;
  EXPECT_EQ(StatOf(reply, ring).state, "copying");
  EXPECT_EQ(StatOf(reply, Ring(), Instance::kData).state, "copying") << "whole for the registry";
  EXPECT_TRUE(StatOf(reply, Ring(), Instance::kData).whole);
  (*reply.mutable_values())["copying"] = 0;
  (*reply.mutable_values())["rests"] = 1;
  EXPECT_EQ(StatOf(reply, ring).state, "resting");

  reply = Good();
  reply.set_generation(5);
  EXPECT_EQ(StatOf(reply).state, "anew");
  EXPECT_FALSE(StatOf(reply).whole);
  reply = Good();
  (*reply.mutable_values())["serving"] = 0;
  EXPECT_EQ(StatOf(reply).state, "out");
  EXPECT_THAT(StatOf(reply).remarks[0], HasSubstr("serves nothing"));
}

TEST(StatTest, WhileTheRingChangesItIsSaidWhoComesAndWhoGoes) {
  cache::RingConfig ring = Ring();
  ring.configuration_id = cache::IdOf(1, cache::RingPhase::kBoth);
  ring.replicas[0].in_ring = false;
  ring.replicas[0].in_other = true;
  StatReport report = MakeStat(Instance::kMetadata, ring, {Result<v1::CacheStatReply>(Good())});
  EXPECT_EQ(report.replicas[0].state, "coming");
  EXPECT_EQ(report.members, 0u);
  EXPECT_EQ(report.whole(), 0u);
  EXPECT_THAT(StatText({report}), HasSubstr("the old one is read"));
  ring.configuration_id = cache::IdOf(1, cache::RingPhase::kNew);
  report = MakeStat(Instance::kMetadata, ring, {Result<v1::CacheStatReply>(Good())});
  EXPECT_EQ(report.replicas[0].state, "going");
  EXPECT_THAT(StatText({report}), HasSubstr("the new one is read"));
}

TEST(StatTest, WhoDoesNotAnswerIsDownOrSilent) {
  cache::RingConfig ring = Ring();
  const std::vector<Result<v1::CacheStatReply>> silent{DeadlineExceededError("no answer in 2 s")};
  StatReport report = MakeStat(Instance::kData, ring, silent);
  EXPECT_EQ(report.replicas[0].state, "silent");
  EXPECT_THAT(report.replicas[0].remarks,
              ElementsAre("does not answer at host:1: no answer in 2 s"));
  EXPECT_EQ(report.answered(), 0u);
  EXPECT_EQ(report.whole(), 0u);
  ring.replicas[0].rpc_address.clear();
  EXPECT_EQ(MakeStat(Instance::kData, ring, silent).replicas[0].state, "down");
}

TEST(StatTest, AnotherRingThanTheRegistrysIsSaid) {
  v1::CacheStatReply reply = Good();
  reply.set_configuration_id(2);
  EXPECT_THAT(StatOf(reply).remarks,
              ElementsAre("knows configuration 2 and epoch 2, the registry says 4 and epoch 2"));
  EXPECT_THAT(StatOf(reply, Ring(), Instance::kData).remarks,
              ElementsAre("knows configuration 2, the registry says 4"));
}

TEST(StatTest, OnlyTheMetadataCacheHasEpochs) {
  for (const Instance instance : {Instance::kData, Instance::kMetadata}) {
    const StatReport report = MakeStat(instance, Ring(), {Result<v1::CacheStatReply>(Good())});
    const bool has = instance == Instance::kMetadata;
    EXPECT_THAT(StatText({report}),
                HasSubstr(has ? "configuration 4, epoch 2; " : "configuration 4; "));
    EXPECT_THAT(StatText({report}), HasSubstr(has ? " 4/2 " : " 4/- "));
    const auto json = nlohmann::json::parse(StatJson({report}))["caches"][0];
    EXPECT_EQ(json.contains("epoch"), has);
    EXPECT_EQ(json["replicas"][0].contains("epoch"), has);
  }
}

TEST(StatTest, CountersThatSomebodyShouldLookAtAreSaid) {
  v1::CacheStatReply reply = Good();
  auto& values = *reply.mutable_values();
  values["mismatches"] = 1;
  values["refused_no_slot"] = 40;
  values["collected"] = 2;
  EXPECT_THAT(StatOf(reply).remarks,
              ElementsAre(AllOf(HasSubstr("1 value contradicted"), HasSubstr("DataLoss")),
                          HasSubstr("40 values refused for want of memory"),
                          HasSubstr("2 values collected before their time")));
  EXPECT_EQ(StatOf(reply, Ring(), Instance::kData).remarks.size(), 2u)
      << "chunks are collected, that is how it is";
}

TEST(StatTest, TheTextFitsEightyColumnsWhateverTheNumbersAre) {
  cache::RingConfig ring = Ring();
  ring.configuration_id = cache::ConfigurationId{123'456'789};
  ring.replicas[0].name = "cache-" + std::string(50, 'x') + "-17";
  v1::CacheStatReply reply = Good();
  for (auto& [key, value] : *reply.mutable_values()) value = 999'499'999;
  reply.set_configuration_id(123'456'788);
  ring.replicas.push_back(ring.replicas[0]);
  const std::string text = StatText({MakeStat(
      Instance::kData, ring, {Result<v1::CacheStatReply>(reply), UnavailableError("gone away")})});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_THAT(text, HasSubstr("-17 abcd silent"));
}

TEST(StatTest, JsonHasTheWholeIncarnationAndAllValues) {
  const std::string json =
      StatJson({MakeStat(Instance::kMetadata, Ring(), {Result<v1::CacheStatReply>(Good())})});
  EXPECT_THAT(json, AllOf(HasSubstr("\"abcd000000000001\""), HasSubstr("\"live\": 123456"),
                          HasSubstr("\"whole_replicas\": 1")));
}

}  // namespace
}  // namespace tailcast::inspect
