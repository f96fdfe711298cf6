#include "tailcast/cache/key_read.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/server_core.h"
#include "tailcast/cache/test_fabric.h"
#include "tailcast/cache/test_loop.h"

namespace tailcast::cache {
namespace {

using fabric::ReadStatus;

struct NoRpc : rpc::Connector {
  std::unique_ptr<rpc::Client> MakeClient(const std::string&, const std::string&) override {
    return nullptr;
  }
};

// Reads of one key over a driver that registers memory.
class KeyReadTest : public testing::Test {
 protected:
  KeyReadTest() {
    EXPECT_TRUE(SetLogLevels("off").ok());
    net_.immediate = false;
    net_.registers_memory = true;
    const MemoryPlan plan = PlanMemory(8 << 20, 4096);
    const auto index = *exporter_.AddRegion(layout::kIndexRegion, plan.index_bytes);
    const auto data = *exporter_.AddRegion(layout::kDataRegion, plan.data_bytes);
    server_ = std::make_unique<ServerCore>(ServerCoreOptions{}, index, data, kGeneration);
    EXPECT_TRUE(exporter_.Listen().ok());
    link_ = std::make_unique<ReplicaLink>(context_, connector_, rpc_, Replica{"a", "", {"test:a"}});
    link_->Connect();
    loop_.RunFor(Duration::Millis(1));
    EXPECT_EQ(link_->state(), ReplicaLink::State::kReady);
    // So that there is more than the bucket to read.
    context_.locations.SlotOf(kGeneration, kKey) = {kKey, kGeneration, {0, 4096}};
    places_ = link_->places();
    all_ = places_->free();
  }

  // What its parts come to.
  void Read(const std::vector<ReadStatus>& parts) {
    TestFabric::Host& host = net_.hosts["a"];
    host.next_statuses.assign(parts.begin(), parts.end());
    StartKeyRead(context_, *link_, kKey, nullptr, /*land=*/false, context_.slots.Take(),
                 scope_.Bind([this](const KeyAnswer& answer, std::string_view) {
                   ++answers_;
                   EXPECT_EQ(answer.outcome, KeyOutcome::kFailed);
                 }));
    loop_.RunFor(Duration::Seconds(2));
    EXPECT_TRUE(host.next_statuses.empty()) << "it has not so many parts";
  }

  static constexpr layout::Generation kGeneration{5};
  static constexpr Key kKey{1, 2};
  TestLoop loop_;
  TestFabric net_{1};
  ClientContext context_{loop_, {}};
  TestConnector connector_{&net_, &loop_};
  NoRpc rpc_;
  TestExporter exporter_{&net_, "a"};
  std::unique_ptr<ServerCore> server_;
  std::unique_ptr<ReplicaLink> link_;
  std::shared_ptr<ReadPlaces> places_;
  size_t all_ = 0;
  int answers_ = 0;
  const Scope scope_;
};

TEST_F(KeyReadTest, AReadThatWasNotSentGivesItsPlaceBack) {
  Read({ReadStatus::kOverloaded, ReadStatus::kOverloaded});
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(places_->free(), all_);
}

TEST_F(KeyReadTest, APlaceWhereAReadTimedOutIsTakenByNobodyElse) {
  Read({ReadStatus::kTimeout, ReadStatus::kTimeout});
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(places_->free(), all_ - 1);
}

// The worst status of the parts hides that.
TEST_F(KeyReadTest, NorIsOneWhereAPartTimedOutAndAnotherWasNotSent) {
  Read({ReadStatus::kTimeout, ReadStatus::kOverloaded});
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(places_->free(), all_ - 1);
}

}  // namespace
}  // namespace tailcast::cache
