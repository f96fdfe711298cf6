#include "tailcast/cache/write_link.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/test_loop.h"
#include "tailcast/cache/wire.h"
#include "tailcast/fabric/fake_fabric.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::cache {
namespace {

const bool kQuiet = SetLogLevels("off").ok();

// Answers calls at once: each mutation was applied.
class CallTaker : public rpc::Client {
 public:
  explicit CallTaker(EventLoop& loop) : loop_(loop) {}
  void Call(std::string_view method, std::string request, Duration,
            Callback<void(Result<std::string>)> done) override {
    EXPECT_EQ(method, "/tailcast.v1.DataCache/Mutate");
    v1::CacheMutateRequest message;
    EXPECT_TRUE(message.ParseFromString(request));
    EXPECT_EQ(message.incarnation(), 9u);
    values.push_back(message.batch().payload());
    v1::CacheMutateReply reply;
    reply.set_results(std::string(message.batch().rules().size(), '\0'));
    loop_.Post(std::move(done).With(Result<std::string>(reply.SerializeAsString())));
  }
  std::unique_ptr<rpc::Stream> Open(std::string_view) override { return nullptr; }
  const std::string& address() const override { return address_; }

  std::vector<std::string> values;

 private:
  EventLoop& loop_;
  const std::string address_ = "a:1";
};

class WriteLinkTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kQuiet); }

  void StartServer() {
    exporter_ = network_.MakeExporter("a", {.loop = &loop_});
    ASSERT_TRUE(exporter_->AddRegion(0, 4096).ok());
    exporter_->ServeMessages(scope_.Bind([this](std::string_view message, std::string& answer) {
      if (garbage_) {
        answer = "?";
        return;
      }
      Result<MutateReader> reader = MutateReader::Parse(message);
      ASSERT_TRUE(reader.ok()) << reader.status();
      MutateMessage::Entry entry;
      std::string results;
      while (reader->Next(entry)) {
        values_.emplace_back(entry.value);
        results += '\0';
      }
      AppendAnswer({MutateStatus::kDone, ConfigurationId{4}, results}, answer);
    }));
    ASSERT_TRUE(exporter_->Listen().ok());
  }
  void Link(bool calls = true) {
    link_ = std::make_unique<WriteLink>(context_, *connector_, calls ? &calls_ : nullptr,
                                        Replica{"a", "a:1", {"fake:a"}});
  }

  // A write and what became of it.
  struct One {
    MutateMessage message;
    std::string value, fate;
    uint64_t write = 0;
  };
  One& Write(std::string value) {
    One& one = *writes_.emplace_back(std::make_unique<One>());
    one.value = std::move(value);
    one.message.set_context({ConfigurationId{4}, CacheEpoch{1}, ProcessIncarnation{9}});
    one.message.Add({1, 2}, MergeRule::kLongerWins, false, one.value);
    one.write = link_->Write(&one.message, loop_.Now() + Duration::Seconds(1),
                             scope_.Bind([&one](const WriteLink::Outcome& outcome) {
                               using Failure = WriteLink::Failure;
                               one.fate += outcome.failure == Failure::kNone ? "done"
                                           : outcome.failure == Failure::kUnreachable
                                               ? "unreachable"
                                           : outcome.failure == Failure::kChannelBroken ? "broken"
                                           : outcome.failure == Failure::kNoAddress ? "no address"
                                           : outcome.failure == Failure::kBadReply  ? "bad reply"
                                                                                    : "timeout";
                             }));
    EXPECT_EQ(one.fate, "") << "called back inside the call";
    return one;
  }
  const ClientCounters& counters() const { return context_.counters; }

  TestLoop loop_;
  fabric::FakeFabricNetwork network_{&loop_, 1};
  std::unique_ptr<fabric::Connector> connector_ = network_.MakeConnector("client", &loop_);
  ClientContext context_{loop_, {}};
  CallTaker calls_{loop_};
  std::unique_ptr<fabric::Exporter> exporter_;
  bool garbage_ = false;
  std::vector<std::string> values_;  // that came over the channel
  std::vector<std::unique_ptr<One>> writes_;
  const Scope scope_;
  std::unique_ptr<WriteLink> link_;
};

TEST_F(WriteLinkTest, OpensItsChannelForTheFirstWriteAndCallsNobody) {
  StartServer();
  Link();
  loop_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(network_.counters().messages, 0u);
  for (const char* value : {"a", "b", "c"}) Write(value);
  EXPECT_GT(link_->bytes(), 3u);
  loop_.RunFor(Duration::Millis(1));
  Write("d");
  loop_.RunFor(Duration::Millis(1));
  for (const auto& one : writes_) EXPECT_EQ(one->fate, "done");
  EXPECT_EQ(values_, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(counters().write_messages, 4u);
  EXPECT_EQ(counters().write_calls, 0u);
  EXPECT_EQ(link_->bytes(), 0u);
}

TEST_F(WriteLinkTest, WritesByCallsWhileThereIsNoChannelAndTriesAgain) {
  Link();
  Write("a");
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(counters().channel_failed, 1u);
  Write("b");  // too early for another attempt
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(counters().channel_failed, 1u);
  EXPECT_EQ(calls_.values, (std::vector<std::string>{"a", "b"}));
  StartServer();
  loop_.RunFor(Duration::Millis(20));
  Write("c");
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(values_, (std::vector<std::string>{"c"}));
  for (const auto& one : writes_) EXPECT_EQ(one->fate, "done");
  EXPECT_EQ(counters().write_calls, 2u);
}

TEST_F(WriteLinkTest, MovesToABetterAddressBetweenTwoWrites) {
  StartServer();
  link_ = std::make_unique<WriteLink>(context_, *connector_, &calls_,
                                      Replica{"a", "a:1", {"fake:fast", "fake:a"}});
  Write("a");
  loop_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(link_->way().address, "fake:a");
  EXPECT_NE(link_->way().passed_over, "");
  std::vector<std::string> over_fast;
  auto fast = network_.MakeExporter("fast", {.loop = &loop_});
  ASSERT_TRUE(fast->AddRegion(0, 4096).ok());
  fast->ServeMessages(scope_.Bind([&](std::string_view message, std::string& answer) {
    Result<MutateReader> reader = MutateReader::Parse(message);
    ASSERT_TRUE(reader.ok());
    MutateMessage::Entry entry;
    while (reader->Next(entry)) over_fast.emplace_back(entry.value);
    AppendAnswer({MutateStatus::kDone, ConfigurationId{4}, std::string(1, '\0')}, answer);
  }));
  ASSERT_TRUE(fast->Listen().ok());
  for (int i = 0; i < 40; ++i) {
    Write(std::to_string(i));
    loop_.RunFor(Duration::Seconds(1));
  }
  for (const auto& one : writes_) EXPECT_EQ(one->fate, "done");
  EXPECT_EQ(link_->way().address, "fake:fast");
  EXPECT_EQ(counters().channel_moved_up, 1u);
  EXPECT_EQ(counters().channel_broken, 0u);
  EXPECT_EQ(calls_.values.size(), 0u);
  EXPECT_EQ(values_.size() + over_fast.size(), 41u);
  EXPECT_GT(over_fast.size(), 20u);
}

TEST_F(WriteLinkTest, OfWhatWasSentOverAChannelThatBreaksNobodyKnows) {
  StartServer();
  Link();
  Write("a");
  loop_.RunFor(Duration::Millis(1));
  network_.Stop("a");
  const std::string large(60'000, 'x');
  for (int i = 0; i < 20; ++i) Write(large);  // more than there is credit for
  loop_.RunFor(Duration::Millis(1));
  network_.Kill("a");
  loop_.RunFor(Duration::Millis(1));
  const uint64_t sent = counters().write_messages;
  ASSERT_LT(sent, 21u);
  for (size_t i = 1; i < writes_.size(); ++i) {
    EXPECT_EQ(writes_[i]->fate, i < sent ? "broken" : "done") << i;
  }
  EXPECT_EQ(calls_.values.size(), 21 - sent) << "what was not sent is called instead, nothing else";
  EXPECT_EQ(counters().channel_broken, 1u);
  EXPECT_EQ(link_->bytes(), 0u);
}

TEST_F(WriteLinkTest, WhatIsCancelledIsNotToldAndTakesNoRoom) {
  StartServer();
  Link();
  Write("a");
  loop_.RunFor(Duration::Millis(1));
  network_.Stop("a");
  const std::string large(60'000, 'x');
  for (int i = 0; i < 40; ++i) Write(large);
  for (size_t i = 1; i < writes_.size(); ++i) link_->Cancel(writes_[i]->write);
  EXPECT_EQ(link_->bytes(), 0u);
  network_.Continue("a");
  loop_.RunFor(Duration::Millis(1));
  for (size_t i = 1; i < writes_.size(); ++i) EXPECT_EQ(writes_[i]->fate, "");
  EXPECT_LT(values_.size(), 25u) << "what had not been sent never is";
}

TEST_F(WriteLinkTest, AChannelThatAnswersNothingIsLeft) {
  StartServer();
  Link();
  Write("a");
  loop_.RunFor(Duration::Millis(1));
  network_.Stop("a");
  One& given_up = Write("b");
  One& other = Write("c");
  loop_.RunFor(Duration::Millis(150));
  link_->Cancel(given_up.write);
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(other.fate, "") << "it may be slow";
  One& late = Write("d");
  loop_.RunFor(Duration::Millis(150));
  link_->Cancel(late.write);
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(given_up.fate + late.fate, "");
  EXPECT_EQ(other.fate, "broken");
  EXPECT_EQ(counters().channel_silent, 1u);
  Write("e");
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(writes_.back()->fate, "done") << "by a call";
  EXPECT_EQ(counters().write_calls, 1u);
}

// Time-outs are looked at before what came meanwhile.
TEST_F(WriteLinkTest, WhoDidNotRunItselfFindsItsAnswers) {
  StartServer();
  Link();
  Write("a");
  loop_.RunFor(Duration::Millis(1));
  One& given_up = Write("b");
  One& other = Write("c");
  loop_.Sleep(Duration::Seconds(2));
  link_->Cancel(given_up.write);
  loop_.RunFor(Duration::Millis(10));
  EXPECT_EQ(other.fate, "done");
  EXPECT_EQ(counters().channel_silent, 0u);
}

TEST_F(WriteLinkTest, AnAnswerThatDoesNotAddUpIsNone) {
  StartServer();
  garbage_ = true;
  Link();
  One& one = Write("a");
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(one.fate, "bad reply");
}

TEST_F(WriteLinkTest, WithoutAnyAddressItSaysSo) {
  link_ = std::make_unique<WriteLink>(context_, *connector_, nullptr, Replica{"a", "", {}});
  One& one = Write("a");
  loop_.RunFor(Duration::Millis(1));
  EXPECT_EQ(one.fate, "no address");
}

}  // namespace
}  // namespace tailcast::cache
