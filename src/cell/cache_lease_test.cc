#include "tailcast/cell/cache_lease.h"

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/client.h"
#include "tailcast/cell/registry_store.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::cell {
namespace {

using cache::CacheEpoch;
using cache::ConfigurationId;

constexpr uint64_t kLife = 77;
constexpr ConfigurationId kRing{4};
constexpr Duration kLease = Duration::Millis(1500);

class CacheLeaseTest : public ::testing::Test {
 protected:
  CacheLeaseTest() {
    EXPECT_TRUE(server_.Start().ok());
    Know(kRing, CacheEpoch{1});
    std::optional<Status> opened;
    log_.Open(scope_.Bind([&](const Result<v1::RegistrySnapshot>& r) { opened = r.status(); }));
    EXPECT_TRUE(time_.RunUntil([&] { return opened.has_value(); }, Duration::Seconds(1)));
    Write(kRing, CacheEpoch{1}, {kLife});
  }
  // The server hears of this.
  void Know(ConfigurationId ring, CacheEpoch epoch) {
    cache::RingConfig config;
    config.configuration_id = ring;
    config.epoch = epoch;
    config.replicas.push_back({.name = "a", .incarnation = ProcessIncarnation{kLife}});
    server_.UpdateRing(config);
  }
  void Write(ConfigurationId ring, CacheEpoch epoch, const std::vector<uint64_t>& lives) {
    v1::RegistrySnapshot record;
    record.set_ring_configuration_id(Raw(ring));
    record.set_cache_epoch(Raw(epoch));
    v1::CacheMember* member = record.add_cache_members();
    member->set_name("a");
    for (const uint64_t life : lives) member->add_lives(life);
    std::optional<Status> written;
    log_.Write(record, scope_.Bind([&](Status status) { written = std::move(status); }));
    ASSERT_TRUE(time_.RunUntil([&] { return written.has_value(); }, Duration::Seconds(1)));
    ASSERT_TRUE(written->ok()) << *written;
  }
  void Renew() { Answer(loop_->Now(), kLease); }
  // The scheduler does, to a call that was sent then.
  void Answer(MonotonicTime sent, Duration lease) {
    v1::RegisterReply reply;
    reply.set_lease_ms(lease.millis());
    reply.set_ring_configuration_id(Raw(kRing));
    reply.set_cache_epoch(1);
    lease_.OnRenewed(sent, reply);
  }
  // Each of the four requests that a look takes: list, open, read, and read that this is the end.
  void SetRequestTime(Duration base) {
    storage::FakeDiskOptions slow;
    slow.request.base = base;
    disk_.SetOptions(slow);
  }
  bool ServesAfter(Duration duration) {
    time_.RunFor(duration);
    return server_.state().serving;
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("cache");
  storage::FakeDisk disk_{loop_.get(), 1};
  storage::FakeStore store_{&disk_, loop_.get()};
  RegistryStore log_{*loop_, store_};
  sim::Network network_{time_, Rng(1)};
  fabric::FakeFabricNetwork fabric_{loop_.get(), 1};
  std::unique_ptr<fabric::Exporter> exporter_ = fabric_.MakeExporter("a", {.loop = loop_.get()});
  std::unique_ptr<rpc::Server> rpc_ = network_.MakeServer(*loop_, "host");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "host");
  cache::Server server_{loop_.get(), exporter_.get(), rpc_.get(), connector_.get(), [] {
                          cache::ServerOptions options;
                          options.name = "a";
                          options.memory_bytes = 2 << 20;
                          options.incarnation = ProcessIncarnation{kLife};
                          return options;
                        }()};
  Scope scope_;
  CacheLease lease_{*loop_, store_, server_, "a", ProcessIncarnation{kLife}};
};

TEST_F(CacheLeaseTest, WhileTheSchedulerIsAwayTheRecordWillDo) {
  EXPECT_TRUE(ServesAfter(Duration::Seconds(5))) << "no lease was given";
  Renew();
  EXPECT_TRUE(ServesAfter(Duration::Seconds(60)));
  EXPECT_EQ(server_.counters().leases_ended(), 0u);
}

TEST_F(CacheLeaseTest, WhoReachesNeitherClosesAfterTheLeaseUntilTheSchedulerAnswers) {
  Renew();
  store_.Hang();
  EXPECT_TRUE(ServesAfter(kLease - Duration::Millis(10)));
  EXPECT_FALSE(ServesAfter(Duration::Millis(20)));
  EXPECT_EQ(server_.counters().leases_unreachable, 1u);
  EXPECT_EQ(server_.counters().leases_ended(), 1u);
  EXPECT_FALSE(ServesAfter(Duration::Seconds(20)));
  Renew();
  EXPECT_TRUE(server_.state().serving);
}

TEST_F(CacheLeaseTest, ARecordThatSaysMoreThanTheServerKnowsIsNoRenewal) {
  for (const auto& [ring, epoch, lives] :
       std::vector<std::tuple<ConfigurationId, CacheEpoch, std::vector<uint64_t>>>{
           {ConfigurationId{5}, CacheEpoch{1}, {kLife}},
           {kRing, CacheEpoch{2}, {kLife}},
           {kRing, CacheEpoch{1}, {kLife, 78}},
           {kRing, CacheEpoch{1}, {}}}) {
    const uint64_t before = server_.counters().leases_record_differs;
    Write(kRing, CacheEpoch{1}, {kLife});
    Renew();
    EXPECT_TRUE(ServesAfter(Duration::Seconds(5)));
    Write(ring, epoch, lives);
    EXPECT_FALSE(ServesAfter(kLease + Duration::Millis(100)));
    EXPECT_FALSE(ServesAfter(Duration::Seconds(5)));
    EXPECT_EQ(server_.counters().leases_record_differs, before + 1);
  }
  EXPECT_EQ(server_.counters().leases_unreachable, 0u);
}

TEST_F(CacheLeaseTest, WhatTheRecordSaidBeforeTheLastRenewalIsNoCause) {
  Renew();
  Write(ConfigurationId{5}, CacheEpoch{1}, {kLife});
  EXPECT_TRUE(ServesAfter(kLease - Duration::Millis(100)));
  Renew();
  store_.Hang();
  EXPECT_FALSE(ServesAfter(Duration::Seconds(5)));
  EXPECT_EQ(server_.counters().leases_unreachable, 1u);
  EXPECT_EQ(server_.counters().leases_record_differs, 0u);
}

// Nothing that it serves ends with its lease.
TEST_F(CacheLeaseTest, OfOneThatServesNothingNoLeaseIsCounted) {
  Renew();
  store_.Hang();
  cache::RingConfig config;
  config.configuration_id = ConfigurationId{5};
  server_.UpdateRing(config);
  EXPECT_FALSE(ServesAfter(Duration::Seconds(5)));
  EXPECT_EQ(server_.counters().leases_ended(), 0u);
  Know(ConfigurationId{6}, CacheEpoch{1});
  EXPECT_FALSE(server_.state().serving) << "it has ended for all that";
}

TEST_F(CacheLeaseTest, WhoLearnsWhatTheRecordSaysGoesOn) {
  Renew();
  Write(ConfigurationId{5}, CacheEpoch{1}, {kLife});
  EXPECT_FALSE(ServesAfter(Duration::Seconds(5)));
  Know(ConfigurationId{5}, CacheEpoch{1});
  EXPECT_TRUE(ServesAfter(Duration::Seconds(1)));
}

// The record may be read slowly: what counts is when that began.
TEST_F(CacheLeaseTest, ARecordIsAsOldAsTheBeginOfItsReading) {
  Renew();
  SetRequestTime(Duration::Seconds(2));
  EXPECT_FALSE(ServesAfter(Duration::Seconds(10)));
}

// docs/ops/storage.md says how slow the primary layer may be: two looks, one after the other, are
// within the lease.
TEST_F(CacheLeaseTest, ASlowPrimaryLayerWillDo) {
  for (const auto base : {Duration::Millis(140), Duration::Millis(180)}) {
    SetRequestTime(base);
    Renew();
    EXPECT_TRUE(ServesAfter(Duration::Seconds(60))) << base.millis();
    EXPECT_EQ(server_.counters().leases_ended(), 0u) << base.millis();
  }
  SetRequestTime(Duration::Millis(200));
  Renew();
  ServesAfter(Duration::Seconds(60));
  EXPECT_GT(server_.counters().leases_ended(), 0u);
}

// The scheduler is asked again a third of the lease after it answered; an answer that does not take
// long comes before the primary layer is asked anything.
TEST_F(CacheLeaseTest, WhileTheSchedulerAnswersNobodyLooksAtTheRecord) {
  const MonotonicTime sent = loop_->Now();
  Renew();
  time_.RunFor(kLease / 3 + Duration::Millis(50));
  Answer(sent, kLease);
  store_.Hang();
  EXPECT_TRUE(ServesAfter(sent + kLease - Duration::Millis(10) - loop_->Now()));
  EXPECT_FALSE(ServesAfter(Duration::Millis(20))) << "a look has renewed the lease";
}

TEST_F(CacheLeaseTest, ALeaseOfNothingDoesNotMakeItSpin) {
  Answer(loop_->Now(), Duration());
  int steps = 0;
  EXPECT_FALSE(time_.RunUntil([&] { return ++steps > 20'000; }, Duration::Seconds(1)));
}

}  // namespace
}  // namespace tailcast::cell
