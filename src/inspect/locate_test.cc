#include "tailcast/inspect/locate.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/strong.h"

namespace tailcast::inspect {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Answer = Result<v1::CacheLocateReply>;

constexpr cache::Key kKey{0x0123456789abcdef, 0xfedcba9876543210};

cache::RingConfig Ring(int replicas) {
  cache::RingConfig ring;
  ring.configuration_id = cache::ConfigurationId{4};
  ring.epoch = cache::CacheEpoch{2};
  for (int i = 1; i <= replicas; ++i) {
    cache::Replica replica;
    replica.name = "cache-" + std::to_string(i);
    replica.rpc_address = "host:" + std::to_string(i);
    replica.incarnation = ProcessIncarnation{static_cast<uint64_t>(i)};
    ring.replicas.push_back(replica);
  }
  return ring;
}

// The key's owners of a ring of four, which answer as the test says.
class LocateTest : public ::testing::Test {
 protected:
  LocateTest() {
    for (const size_t owner : OwnersOf(ring_, kKey)) {
      owners_.push_back(owner);
      v1::CacheLocateReply reply;
      reply.set_incarnation(Raw(ring_.replicas[owner].incarnation));
      reply.set_serving(true);
      reply.set_bucket(17);
      answers_.emplace_back(reply);
    }
  }
  void Has(size_t i, const std::string& value,
           cache::MergeRule rule = cache::MergeRule::kLongerWins) {
    v1::CacheLocateReply& reply = *answers_[i];
    reply.set_found(true);
    reply.set_rule(static_cast<uint32_t>(rule));
    reply.set_value(value);
    reply.set_crc(Crc32cExtend(0, value.data(), value.size()));
    reply.set_version(5);
    reply.set_remaining_ms(59'000);
  }
  const std::string& Name(size_t i) const { return ring_.replicas[owners_[i]].name; }
  LocateReport Report() const { return Compare({Instance::kData, kKey, {}}, ring_, answers_); }

  cache::RingConfig ring_ = Ring(4);
  std::vector<size_t> owners_;
  std::vector<Answer> answers_;
};

TEST_F(LocateTest, OwnersThatAreAlikeAreComplete) {
  for (size_t i = 0; i < 3; ++i) Has(i, "bytes");
  const LocateReport report = Report();
  EXPECT_EQ(report.value, "bytes");
  EXPECT_TRUE(report.complete && report.alike && !report.contradicts);
  EXPECT_THAT(report.verdict, ElementsAre("Complete: 3 of 3 owners count, all alike."));
  EXPECT_THAT(LocateText(report, {}),
              AllOf(HasSubstr("  key 0123456789abcdeffedcba9876543210, ring of configuration 4\n"),
                    HasSubstr("59 s       5\n")));
  EXPECT_THAT(DumpSummary(report), HasSubstr("5 bytes, crc32c "));
}

TEST_F(LocateTest, NothingAnywhereIsACompleteAbsence) {
  const LocateReport report = Report();
  EXPECT_FALSE(report.value.has_value());
  EXPECT_TRUE(report.complete);
  EXPECT_THAT(DumpSummary(report), HasSubstr("absent. Complete: there is no such value"));
}

TEST_F(LocateTest, OneThatLagsIsNoContradiction) {
  Has(0, "long value");
  Has(1, "long");
  const LocateReport report = Report();
  EXPECT_EQ(report.value, "long value");
  EXPECT_FALSE(report.contradicts);
  EXPECT_FALSE(report.alike);
  EXPECT_THAT(report.verdict,
              ElementsAre("Complete: 3 of 3 owners count.", Name(1) + " has 4 of 10 bytes.",
                          Name(2) + " has not got it."));
}

TEST_F(LocateTest, ValuesThatAreNoBeginningOfEachOtherContradict) {
  Has(0, "abc");
  Has(1, "abd");
  Has(2, "abc");
  const LocateReport report = Report();
  EXPECT_TRUE(report.contradicts);
  EXPECT_THAT(report.verdict[1], AllOf(HasSubstr("CONTRADICTION: " + Name(0) + " and " + Name(1)),
                                       HasSubstr("DataLoss")));
  EXPECT_EQ(report.value, "abc") << "a reader is given one of them";
}

TEST_F(LocateTest, OtherRulesForOneKeyContradict) {
  Has(0, "12345678");
  Has(1, "12345678", cache::MergeRule::kMaxLanes);
  EXPECT_TRUE(Report().contradicts);
}

TEST_F(LocateTest, BytesThatDoNotFitTheirCheckSumAreSaid) {
  Has(0, "abc");
  Has(1, "abc");
  Has(2, "abc");
  answers_[2]->set_crc(1);
  const LocateReport report = Report();
  EXPECT_TRUE(report.contradicts);
  EXPECT_THAT(report.verdict[1], HasSubstr("what " + Name(2) + " has does not fit its own check"));
  answers_[2]->set_rule(77);
  EXPECT_TRUE(Report().owners[2].damaged);
}

TEST_F(LocateTest, LanesAreJoinedAndAnOlderValueIsSaid) {
  const std::string low(16, '\1'), high(16, '\2');
  Has(0, low, cache::MergeRule::kMaxLanes);
  Has(1, high, cache::MergeRule::kMaxLanes);
  Has(2, high, cache::MergeRule::kMaxLanes);
  const LocateReport report = Report();
  EXPECT_EQ(report.value, high);
  EXPECT_FALSE(report.contradicts);
  EXPECT_THAT(report.verdict[1], Name(0) + " has an older value.");
}

TEST_F(LocateTest, OneWholeOwnerIsPartial) {
  Has(0, "bytes");
  answers_[1] = DeadlineExceededError("no answer in time");
  answers_[2] = UnavailableError("x");
  ring_.replicas[owners_[2]].rpc_address.clear();
  const LocateReport report = Report();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.owners[1].state, "silent");
  EXPECT_EQ(report.owners[2].state, "down");
  EXPECT_THAT(report.verdict[0], AllOf(HasSubstr("PARTIAL: 1 of 3 owners counts, and 2 are needed"),
                                       HasSubstr("lower bound")));
  EXPECT_THAT(LocateText(report, {}), HasSubstr("    " + Name(1) + ": no answer in time\n"));
  EXPECT_THAT(DumpSummary(report), HasSubstr(Name(2) + " is down."));
}

TEST_F(LocateTest, AnAbsenceThatFewSayIsNone) {
  answers_[0] = answers_[1] = UnavailableError("gone");
  const LocateReport report = Report();
  EXPECT_FALSE(report.complete);
  EXPECT_THAT(report.verdict[0], HasSubstr("does not say that there is nothing"));
  EXPECT_THAT(DumpSummary(report), HasSubstr("absent. PARTIAL: 1 of 3"));
}

TEST_F(LocateTest, WhoIsNotWholeDoesNotCount) {
  Has(0, "bytes");
  ring_.replicas[owners_[1]].whole = false;
  answers_[2]->set_incarnation(99);
  LocateReport report = Report();
  EXPECT_EQ(report.owners[1].state, "copying");
  EXPECT_EQ(report.owners[2].state, "anew");
  EXPECT_FALSE(report.complete);
  answers_[2]->set_serving(false);
  EXPECT_EQ(Report().owners[2].state, "out");
}

TEST_F(LocateTest, ARingThatChangesIsSaid) {
  ring_.configuration_id = cache::IdOf(1, cache::RingPhase::kBoth);
  EXPECT_THAT(Report().verdict.back(), HasSubstr("The ring changes"));
}

TEST_F(LocateTest, ARingOfOneNeedsOne) {
  const cache::RingConfig ring = Ring(1);
  v1::CacheLocateReply reply;
  reply.set_serving(true);
  reply.set_incarnation(1);
  EXPECT_TRUE(Compare({Instance::kData, kKey, {}}, ring, {Answer(reply)}).complete);
  EXPECT_FALSE(Compare({Instance::kData, kKey, {}}, ring, {Answer(UnavailableError(""))}).complete);
  EXPECT_FALSE(Compare({Instance::kData, kKey, {}}, Ring(0), {}).complete);
}

TEST_F(LocateTest, JsonHasWhatTheTextHas) {
  Has(0, "bytes");
  answers_[1] = UnavailableError("not \xff UTF-8");
  const std::string json = LocateJson({Report()}, {});
  EXPECT_THAT(json, AllOf(HasSubstr("\"complete\": true"), HasSubstr("\"bucket\": 17"),
                          HasSubstr("\"state\": \"silent\""), Not(HasSubstr("\xff"))));
}

}  // namespace
}  // namespace tailcast::inspect
