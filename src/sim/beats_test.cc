// Beats over the simulated network: who is stopped is noticed, who is slow is not given up.
#include "tailcast/rpc/beats.h"

#include "gtest/gtest.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::sim {
namespace {

class BeatsTest : public ::testing::Test {
 protected:
  struct Watched {
    Watched(BeatsTest& test, const std::string& address)
        : network(test.network_),
          loop(test.time_.MakeLoop("watched")),
          server(test.network_.MakeServer(*loop, "b")),
          beats(*loop) {
      beats.Attach(*server, "/Beats");
      EXPECT_TRUE(server->Start(address).ok());
    }
    ~Watched() { network.Disconnect(*loop); }
    Network& network;
    std::unique_ptr<SimLoop> loop;
    std::unique_ptr<rpc::Server> server;
    rpc::BeatServer beats;
  };
  void Watch() {
    watch_ =
        std::make_unique<rpc::BeatWatch>(*loop_, *client_, "/Beats", rpc::BeatWatchOptions(),
                                         rpc::BeatWatch::Hooks{[this] { ++heard_; },
                                                               [this](const Status& why) {
                                                                 EXPECT_TRUE(IsUnavailable(why));
                                                                 silent_at_ = time_.now();
                                                                 ++silences_;
                                                               }});
  }

  VirtualTime time_{1};
  Network network_{time_, Rng(2)};
  std::unique_ptr<SimLoop> loop_ = time_.MakeLoop("watcher");
  std::unique_ptr<rpc::Connector> connector_ = network_.MakeConnector(*loop_, "a");
  std::unique_ptr<rpc::Client> client_ = connector_->MakeClient("b:1", "");
  std::unique_ptr<rpc::BeatWatch> watch_;
  int heard_ = 0, silences_ = 0;
  MonotonicTime silent_at_;
};

TEST_F(BeatsTest, WhoIsStoppedIsNoticedSoonAndWhoIsBackToo) {
  Watched watched(*this, "b:1");
  Watch();
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(heard_, 1);
  EXPECT_EQ(silences_, 0);
  const MonotonicTime stopped_at = time_.now();
  watched.loop->Pause();
  time_.RunFor(Duration::Seconds(5));
  EXPECT_EQ(silences_, 1) << "told once";
  EXPECT_LE((silent_at_ - stopped_at).millis(), 300);
  EXPECT_TRUE(watch_->silent());
  watched.loop->Resume();
  time_.RunFor(Duration::Millis(200));
  EXPECT_EQ(heard_, 2);
  EXPECT_FALSE(watch_->silent());
}

TEST_F(BeatsTest, TheWatchersOwnStallIsNobodysSilence) {
  Watched watched(*this, "b:1");
  Watch();
  time_.RunFor(Duration::Seconds(1));
  for (int i = 0; i < 5; ++i) {
    loop_->Pause();
    time_.RunFor(Duration::Seconds(4));
    loop_->Resume();
    time_.RunFor(Duration::Seconds(1));
  }
  EXPECT_EQ(silences_, 0);
}

// The whole machine stands for a moment, and a beat is late by that.
TEST_F(BeatsTest, AShortStallIsNobodysSilence) {
  for (const bool idle : {false, true}) {
    SCOPED_TRACE(idle ? "idle" : "busy");
    Watched watched(*this, idle ? "b:1" : "b:2");
    watched.beats.SetIdle(idle);
    client_ = connector_->MakeClient(idle ? "b:1" : "b:2", "");
    Watch();
    time_.RunFor(Duration::Seconds(1));
    silences_ = 0;
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(i);
      time_.RunFor(Duration::Millis(30'000 + i * 7));  // what it learned of lateness fades
      loop_->Pause();
      watched.loop->Pause();
      time_.RunFor(Duration::Millis(idle ? 290 : 90));
      loop_->Resume();
      time_.RunFor(Duration::Millis(5));
      watched.loop->Resume();
      time_.RunFor(Duration::Seconds(2));
      ASSERT_EQ(silences_, 0);
    }
    watch_.reset();
  }
}

TEST_F(BeatsTest, WhoBecomesBusyWhileNobodyWatchesBeatsAsOneThatIs) {
  Watched watched(*this, "b:1");
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    watched.beats.SetIdle(true);
    Watch();
    time_.RunFor(Duration::Millis(1000 + i * 10));
    watch_.reset();
    time_.RunFor(Duration::Millis(5));
    watched.beats.SetIdle(false);
    Watch();
    time_.RunFor(Duration::Seconds(1));
    ASSERT_EQ(silences_, 0);
    watch_.reset();
    time_.RunFor(Duration::Millis(5));
  }
}

// Here timers run before the beats that came meanwhile.
TEST_F(BeatsTest, AWatcherThatIsLateLooksAtWhatCameMeanwhile) {
  Watched watched(*this, "b:1");
  Watch();
  time_.RunFor(Duration::Seconds(1));
  for (int64_t pause = 90; pause <= 260; pause += 10) {
    for (int64_t phase = 0; phase < 100; phase += 7) {
      time_.RunFor(Duration::Millis(600 + phase));
      loop_->Pause();
      time_.RunFor(Duration::Millis(pause));
      loop_->Resume();
    }
  }
  EXPECT_EQ(silences_, 0);
}

TEST_F(BeatsTest, ABrokenConnectionIsToldAtOnceAndMadeAgain) {
  auto watched = std::make_unique<Watched>(*this, "b:1");
  Watch();
  time_.RunFor(Duration::Seconds(1));
  watched.reset();
  time_.RunFor(Duration::Millis(10));
  EXPECT_EQ(silences_, 1);
  time_.RunFor(Duration::Seconds(20));
  EXPECT_EQ(silences_, 1);
  Watched again(*this, "b:1");
  time_.RunFor(Duration::Seconds(3));
  EXPECT_EQ(heard_, 2);
}

TEST_F(BeatsTest, WhoNeverAnswersIsSilent) {
  Watched watched(*this, "b:1");
  watched.loop->Pause();
  Watch();
  time_.RunFor(Duration::Millis(2900));
  EXPECT_EQ(silences_, 0) << "it may be far away";
  time_.RunFor(Duration::Millis(300));
  EXPECT_EQ(silences_, 1);
}

// What was sent into a cut, the first words of a stream among it, nobody has heard of.
TEST_F(BeatsTest, WhoWasSilentIsHeardAgainThoughNoConnectionBroke) {
  for (const bool connected : {false, true}) {
    SCOPED_TRACE(connected ? "cut later" : "cut from the start");
    Watched watched(*this, connected ? "b:2" : "b:1");
    client_ = connector_->MakeClient(connected ? "b:2" : "b:1", "");
    heard_ = silences_ = 0;
    network_.Partition("a", "b", !connected);
    Watch();
    time_.RunFor(Duration::Seconds(1));
    network_.Partition("a", "b", true);
    time_.RunFor(Duration::Seconds(20));
    EXPECT_EQ(silences_, 1);
    network_.Partition("a", "b", false);
    time_.RunFor(Duration::Seconds(6));
    EXPECT_FALSE(watch_->silent());
    EXPECT_EQ(heard_, connected ? 2 : 1);
    EXPECT_EQ(silences_, 1);
    watch_.reset();
  }
}

// Nothing depends on it: three times fewer beats, and its stop is noticed all the same.
TEST_F(BeatsTest, WhoIsIdleBeatsLessAndAtOnceWhenItIsNot) {
  Watched watched(*this, "b:1");
  watched.beats.SetIdle(true);
  Watch();
  time_.RunFor(Duration::Seconds(1));
  const uint64_t idle_from = time_.events_run();
  time_.RunFor(Duration::Seconds(10));
  const uint64_t idle = time_.events_run() - idle_from;
  watched.beats.SetIdle(false);
  time_.RunFor(Duration::Seconds(1));
  const uint64_t busy_from = time_.events_run();
  time_.RunFor(Duration::Seconds(10));
  EXPECT_GE(time_.events_run() - busy_from, idle * 5 / 2);
  EXPECT_EQ(silences_, 0);
  for (const bool stops_idle : {false, true}) {
    SCOPED_TRACE(stops_idle ? "idle" : "busy");
    for (int64_t phase = 0; phase < 300; phase += 23) {
      silences_ = 0;
      Watch();
      watched.beats.SetIdle(!stops_idle);
      time_.RunFor(Duration::Millis(2000 + phase));
      watched.beats.SetIdle(stops_idle);
      time_.RunFor(Duration::Millis(stops_idle ? 3000 : 20));
      EXPECT_EQ(silences_, 0);
      const MonotonicTime stopped_at = time_.now();
      watched.loop->Pause();
      time_.RunFor(Duration::Seconds(3));
      EXPECT_EQ(silences_, 1);
      EXPECT_LE((silent_at_ - stopped_at).millis(), stops_idle ? 2100 : 300);
      watched.loop->Resume();
    }
  }
}

TEST_F(BeatsTest, AWatcherThatIsGoneGetsNothingMore) {
  Watched watched(*this, "b:1");
  Watch();
  time_.RunFor(Duration::Seconds(1));
  watch_.reset();
  time_.RunFor(Duration::Seconds(1));
  const uint64_t before = time_.events_run();
  time_.RunFor(Duration::Seconds(10));
  EXPECT_EQ(time_.events_run(), before) << "no timer runs for nobody";
}

}  // namespace
}  // namespace tailcast::sim
