// The calls to readers, driven against hand-made ones; and the turns of the core.
#include "tailcast/scheduler/reader_links.h"
#include "tailcast/base/strong.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tailcast/base/scope.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReaderLinksTest : public ::testing::Test {
 protected:
  // Answers ListOperations as `reply` says, or not at all.
  struct Reader {
    Reader(ReaderLinksTest& test, const std::string& address, uint64_t incarnation)
        : network(test.network_),
          loop(test.time_.MakeLoop("reader")),
          server(test.network_.MakeServer(*loop, "a")),
          beats(*loop) {
      beats.Attach(*server, "/tailcast.v1.Reader/Beats");
      reply.set_reader_incarnation(incarnation);
      reply.set_version(1);
      reply.set_complete(true);
      server->Handle(
          "/tailcast.v1.Reader/ListOperations",
          scope.Bind([this](const std::string& bytes, rpc::Responder respond) {
            known_versions.push_back(rpc::Parse<v1::ListOperationsRequest>(bytes)->known_version());
            waiting = std::move(respond);
            if (answers-- > 0) Answer();
          }));
      server->Handle("/tailcast.v1.Reader/StopOperations",
                     scope.Bind([this](const std::string&, rpc::Responder respond) {
                       ++stops;
                       respond(std::string());
                     }));
      EXPECT_TRUE(server->Start(address).ok());
    }
    ~Reader() { network.Disconnect(*loop); }
    void Answer() { waiting(reply.SerializeAsString()); }

    sim::Network& network;
    std::unique_ptr<sim::SimLoop> loop;
    std::unique_ptr<rpc::Server> server;
    rpc::BeatServer beats;
    v1::ListOperationsReply reply;
    int answers = 0;  // calls to be answered at once
    rpc::Responder waiting;
    std::vector<uint64_t> known_versions;
    int stops = 0;
    Scope scope;
  };

  void Update(const std::vector<WorkerInfo>& readers) {
    v1::CellView view;
    for (const WorkerInfo& reader : readers) {
      auto* process = view.add_processes();
      process->set_role(v1::ROLE_READER);
      process->set_name(reader.name);
      process->set_rpc_address(reader.address);
      process->set_incarnation(Raw(reader.incarnation));
    }
    links_.Update(view);
  }
  int64_t lost() const { return driver_.core().counters().readers_lost; }

  sim::VirtualTime time_{1};
  sim::Network network_{time_, Rng(1)};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("scheduler");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "a");
  std::vector<MonotonicTime> turns_;
  CoreDriver driver_{*loop_,
                     {.cell = "a"},
                     1,
                     {.begin = time_.now() + Duration::Millis(500)},
                     [this](const Effects&) { turns_.push_back(time_.now()); }};
  ReaderLinks links_{*loop_,
                     *connector_,
                     driver_,
                     {.scheduler_incarnation = stream::SchedulerIncarnation{5},
                      .list_wait = Duration::Millis(500)}};
};

TEST_F(ReaderLinksTest, EachAnswerIsFollowedByTheNextQuestion) {
  Reader reader(*this, "a:1", 7);
  reader.answers = 1;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(100));
  EXPECT_THAT(reader.known_versions, ElementsAre(0, 1));
  EXPECT_EQ(lost(), 0);
}

TEST_F(ReaderLinksTest, ASilentReaderIsLostOnceAndThenAskedForEverything) {
  Reader reader(*this, "a:1", 7);
  reader.answers = 1;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(1400));
  EXPECT_EQ(lost(), 0);
  time_.RunFor(Duration::Millis(200));
  EXPECT_EQ(lost(), 1) << "list_wait and call_timeout have passed";
  time_.RunFor(Duration::Seconds(10));
  EXPECT_EQ(lost(), 1);
  EXPECT_EQ(reader.known_versions.back(), 0u);
}

TEST_F(ReaderLinksTest, AStoppedReaderIsLostBeforeItsListIsLate) {
  Reader reader(*this, "a:1", 7);
  reader.answers = 2;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(1000));
  reader.loop->Pause();
  time_.RunFor(Duration::Millis(300));
  EXPECT_EQ(lost(), 1);
  reader.loop->Resume();
  reader.Answer();
  time_.RunFor(Duration::Millis(100));
  EXPECT_EQ(reader.known_versions.back(), 0u) << "it is asked for everything";
  EXPECT_EQ(lost(), 1);
}

TEST_F(ReaderLinksTest, AReaderThatRunsAgainIsAskedAtOnce) {
  Reader reader(*this, "a:1", 7);
  reader.answers = 1;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(500));
  EXPECT_THAT(reader.known_versions, ElementsAre(0, 1));
  reader.loop->Pause();
  time_.RunFor(Duration::Millis(400));
  ASSERT_EQ(lost(), 1);
  reader.loop->Resume();
  reader.answers = 1;
  time_.RunFor(Duration::Millis(100));
  EXPECT_THAT(reader.known_versions, ElementsAre(0, 1, 0, 1)) << "not when its list is due";
}

TEST_F(ReaderLinksTest, NoReaderIsLostForTheSchedulersOwnStall) {
  Reader reader(*this, "a:1", 7);
  reader.answers = 2;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(300));
  loop_->Pause();
  time_.RunFor(Duration::Seconds(5));
  loop_->Resume();
  time_.RunFor(Duration::Millis(1400));
  EXPECT_EQ(lost(), 0);
  EXPECT_EQ(reader.known_versions.back(), 0u) << "what it said meanwhile is asked for again";
  time_.RunFor(Duration::Millis(200));
  EXPECT_EQ(lost(), 1) << "but now it is silent";
}

TEST_F(ReaderLinksTest, AnotherProcessAtTheAddressIsNotTheReader) {
  Reader reader(*this, "a:1", 8);
  reader.answers = 1;
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(100));
  EXPECT_EQ(lost(), 1);
}

TEST_F(ReaderLinksTest, TheAnswerOfAReplacedReaderIsDropped) {
  Reader before(*this, "a:1", 7), after(*this, "a:2", 8);
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  time_.RunFor(Duration::Millis(100));
  Update({{"r0", "a:2", ProcessIncarnation{8}}});
  EXPECT_EQ(lost(), 1);
  time_.RunFor(Duration::Millis(100));
  before.reply.set_version(99);
  before.Answer();
  after.Answer();
  time_.RunFor(Duration::Millis(100));
  EXPECT_EQ(before.known_versions.size(), 1u) << "nobody asks it again";
  EXPECT_THAT(after.known_versions, ElementsAre(0, 1));
}

TEST_F(ReaderLinksTest, OrdersGoToReadersThatThereAre) {
  Reader reader(*this, "a:1", 7);
  Update({{"r0", "a:1", ProcessIncarnation{7}}});
  const stream::OperationId id{stream::Term{.attempt = 1}, stream::Nonce{2}};
  links_.Stop("r0", {id});
  links_.Stop("nobody", {id});
  time_.RunFor(Duration::Millis(100));
  EXPECT_EQ(reader.stops, 1);
  links_.End();
  links_.Stop("r0", {id});
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(reader.stops, 1);
  EXPECT_EQ(lost(), 0) << "nothing is heard after the end";
}

TEST_F(ReaderLinksTest, ManyRequestsForATurnAreOneTurn) {
  driver_.DoWorkSoon();
  driver_.DoWorkSoon();
  EXPECT_THAT(turns_, IsEmpty());
  time_.RunFor(Duration::Millis(1));
  EXPECT_EQ(turns_.size(), 1u);
  driver_.End();
  driver_.DoWorkSoon();
  driver_.DoWork();
  time_.RunFor(Duration::Seconds(1));
  EXPECT_EQ(turns_.size(), 1u) << "none after the end";
}

}  // namespace
}  // namespace tailcast::scheduler
