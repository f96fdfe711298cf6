// A session is destroyed under traffic, with what a user's process has on it, while the loop, the
// cell and other users go on. Here are the real threads that src/world has not: gRPC's, the
// fabric's, the disk's. They know nothing of the end and bring what they have on the way. Worth
// running under asan.
//
// Moments are events: a turn of the loop, an acknowledgement, a message. The deadlines below are
// only there to end a test that hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/server.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/producer/notify.h"
#include "tailcast/producer/producer.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/session/session.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::session {
namespace {

constexpr const char* kStream = "s";
constexpr int32_t kShards = 256;  // each user has one of its own, so that no opener waits

MonotonicTime Deadline() { return ReadMonotonicClock() + Duration::Seconds(60); }

// A cell in this process, on a thread of its own: a cache server, and a registry whose view changes
// with each file that it is told of, so that long polls are answered all the time.
class TestCell {
 public:
  TestCell() {
    char name[] = "/tmp/tailcast-session-XXXXXX";
    folder_ = mkdtemp(name);
    std::filesystem::create_directory(folder_ + "/primary");
    thread_.Call([this] { Open(); });
  }
  ~TestCell() {
    thread_.Call([this] {
      Answer();
      scope_.End();
      data_.reset();
      metadata_.reset();
      data_exporter_.reset();
      metadata_exporter_.reset();
      connector_.reset();
      server_.reset();
    });
    std::filesystem::remove_all(folder_);
  }

  const std::string& address() const { return address_; }

 private:
  void Open() {
    server_ = rpc::MakeGrpcServer(*thread_.loop());
    connector_ = rpc::MakeGrpcConnectorBeside(*server_);
    server_->Handle("/tailcast.v1.Cell/GetView",
                    scope_.Bind([this](const std::string& bytes, rpc::Responder respond) {
                      const auto request = rpc::Parse<v1::GetViewRequest>(bytes);
                      waiting_.push_back(std::move(respond));
                      if (request.ok() && request->known_version() != view_.version()) Answer();
                    }));
    server_->Handle("/tailcast.v1.Cell/NotifyFile",
                    scope_.Bind([this](const std::string&, rpc::Responder respond) {
                      respond(v1::FileNoticeReply().SerializeAsString());
                      view_.set_version(view_.version() + 1);
                      Answer();
                    }));
    cache::ServerOptions options;
    options.name = "cache-1";
    options.incarnation = ProcessIncarnation{1};
    options.memory_bytes = 16 << 20;
    data_exporter_ = MakeExporter("data");
    data_ = std::make_unique<cache::Server>(thread_.loop(), data_exporter_.get(), server_.get(),
                                            connector_.get(), options);
    options.service = cache::kMetadataService;
    options.value_bytes = 1024;
    metadata_exporter_ = MakeExporter("metadata");
    metadata_ = std::make_unique<cache::Server>(thread_.loop(), metadata_exporter_.get(),
                                                server_.get(), connector_.get(), options);
    const auto address = server_->Start("127.0.0.1:0");
    const auto data = data_->Start();
    const auto metadata = metadata_->Start();
    ASSERT_TRUE(address.ok() && data.ok() && metadata.ok());
    address_ = *address;
    Describe(*data, *metadata);
    data_->UpdateRing(cell::DataRing(view_));
    metadata_->UpdateRing(cell::MetadataRing(view_));
  }

  std::unique_ptr<fabric::Exporter> MakeExporter(const std::string& name) {
    fabric::ExporterOptions options;
    options.loop = thread_.loop();
    options.name = name;
    options.shm_socket_path = folder_ + "/" + name + ".shm";
    options.tcp_listen = "127.0.0.1:0";
    return fabric::MakeExporter(options);
  }

  void Describe(const std::vector<std::string>& data, const std::vector<std::string>& metadata) {
    view_.set_version(1);
    view_.set_scheduler_incarnation(1);
    view_.set_cell("home");
    view_.set_cell_key("none");
    view_.set_store("posix+page-cache:" + folder_ + "/primary");
    for (const auto& [ring, addresses] : {std::pair{view_.mutable_data_ring(), &data},
                                          {view_.mutable_metadata_ring(), &metadata}}) {
      ring->set_configuration_id(1);
      v1::Replica& replica = *ring->add_replicas();
      replica.set_name("cache-1");
      replica.set_incarnation(1);
      replica.set_whole(true);
      replica.set_rpc_address(address_);
      for (const std::string& a : *addresses) replica.add_fabric_addresses(a);
    }
    v1::StreamConfig& stream = *view_.add_streams();
    stream.set_name(kStream);
    stream.set_incarnation(1);
    stream.set_shards(kShards);
    stream.set_chunk_size(4096);
    stream.set_source("home");
  }

  void Answer() {
    for (rpc::Responder& respond : std::exchange(waiting_, {})) {
      respond(view_.SerializeAsString());
    }
  }

  std::string folder_;
  LoopThread thread_{"cell"};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Connector> connector_;
  std::unique_ptr<fabric::Exporter> data_exporter_, metadata_exporter_;
  std::unique_ptr<cache::Server> data_, metadata_;
  std::string address_;
  v1::CellView view_;
  std::vector<rpc::Responder> waiting_;
  Scope scope_;
};

// What ends first; the session, which both stand on, goes last.
enum class First : uint8_t { kProducer, kConsumer };

// A user's process that publishes and reads the same shard, on a loop that others use as well. It
// outlives what it owns, so that it sees who is called too late.
class User {
 public:
  User(ThreadLoop& loop, const TestCell& cell, int32_t shard, FabricPreference fabric)
      : loop_(loop),
        shard_(shard),
        session_(std::make_unique<Session>(&loop, Options{cell.address(), fabric})) {
    session_->Start(Duration::Seconds(60), scope_.Bind([this](const Status& started) {
      if (Late(session_.get())) return;
      ASSERT_TRUE(started.ok()) << started;
      // Between the turns of its end nothing is opened anew on the session.
      if (!ending_) OpenAgents();
    }));
  }

  ~User() { End(First::kProducer, false); }

  int64_t acks() const { return acks_; }
  int64_t messages() const { return messages_; }

  void End(First first, bool turn_between) {
    ending_ = true;
    const auto end_consumer = [&] { consumer_.reset(); };
    const auto end_producer = [&] {
      producer_.reset();
      EXPECT_EQ(acks_, published_) << "each message has its outcome before the end";
    };
    if (first == First::kProducer) end_producer();
    if (first == First::kConsumer) end_consumer();
    if (turn_between) loop_.RunOnce();
    if (first == First::kProducer) end_consumer();
    if (first == First::kConsumer) end_producer();
    if (turn_between) loop_.RunOnce();
    session_.reset();
  }

 private:
  void OpenAgents() {
    const stream::CellPorts ports = session_->ports();
    const auto config = session_->cell().FindStream(kStream);
    ASSERT_TRUE(config.ok()) << config.status();
    const stream::ShardId shard{stream::IdOf(*config), shard_};

    producer::AgentOptions producer;
    producer.flush_interval = Duration::Millis(1);
    producer.roll_bytes = 2000;  // files come and go, and the cell is told of each
    producer::ProducerAgent::Hooks hooks;
    hooks.notify = scope_.Bind([this](const producer::FileEvent& event, auto done) {
      if (Late(producer_.get())) return;
      producer::NotifyScheduler(session_->cell(), scope_, event, std::move(done));
    });
    hooks.on_progress = scope_.Bind([this] { (void)Late(producer_.get()); });
    producer_ =
        std::make_unique<producer::ProducerAgent>(ports, shard, producer, std::move(hooks), 1);
    producer_->Open(scope_.Bind([this](const Status& opened) {
      if (Late(producer_.get())) return;
      ASSERT_TRUE(opened.ok()) << opened;
      PublishMore();
    }));

    consumer::AgentOptions consumer;
    consumer.doorbell = true;
    consumer.poll = consumer.primary_poll = Duration::Millis(10);
    consumer_ = std::make_unique<consumer::ConsumerAgent>(ports, shard, consumer,
                                                          scope_.Bind([this] { Take(); }));
    consumer_->Start(consumer::StartPoint::Beginning());
  }

  // A few are always on their way.
  void PublishMore() {
    while (producer_ != nullptr && published_ - acks_ < 4) {
      const Status taken = producer_->Publish(std::string(300, 'x'), [this](const producer::Ack&) {
        ++acks_;
        loop_.Post(scope_.Bind([this] { PublishMore(); }));
      });
      ASSERT_TRUE(taken.ok()) << taken;
      ++published_;
    }
  }

  void Take() {
    if (Late(consumer_.get())) return;
    std::vector<consumer::Message> batch;
    while (consumer_->Take(batch, 1 << 20) > 0) {
      for (const consumer::Message& message : batch) {
        EXPECT_EQ(message.number, messages_++);
        EXPECT_EQ(message.payload, std::string(300, 'x'));
      }
      batch.clear();
      consumer_->Release();
    }
  }

  static bool Late(const void* caller) {
    EXPECT_NE(caller, nullptr) << "called by one that has ended";
    return caller == nullptr;
  }

  ThreadLoop& loop_;
  const int32_t shard_;
  int64_t published_ = 0, acks_ = 0, messages_ = 0;
  bool ending_ = false;
  std::unique_ptr<Session> session_;
  std::unique_ptr<producer::ProducerAgent> producer_;
  std::unique_ptr<consumer::ConsumerAgent> consumer_;
  Scope scope_;
};

class SessionEnd : public ::testing::Test {
 protected:
  SessionEnd() { EXPECT_TRUE(SetLogLevels("off").ok()); }
  TestCell cell_;
};

TEST_F(SessionEnd, UnderTrafficLeavesNothingBehindAndOtherUsersGoOn) {
  ThreadLoop loop;
  std::vector<std::unique_ptr<User>> ended;
  User neighbour(loop, cell_, 0, FabricPreference::kAuto);
  for (int32_t round = 1; round <= 60; ++round) {
    Rng rng = Rng(static_cast<uint64_t>(round)).Fork("moment");
    // Turns are for the start: it has few events of its own.
    enum { kTurn, kAck, kMessage } const kind = std::array{kTurn, kAck, kMessage}[rng.Below(3)];
    const int64_t moment = rng.Between(0, 40);
    const FabricPreference fabric =
        rng.Chance(0.5) ? FabricPreference::kShm : FabricPreference::kTcp;
    const First first = rng.Chance(0.5) ? First::kProducer : First::kConsumer;
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(moment) + " of kind " +
                 std::to_string(kind));

    ended.push_back(std::make_unique<User>(loop, cell_, round, fabric));
    User& user = *ended.back();
    int64_t turns = 0;
    const auto reached = [&] {
      return (kind == kTurn ? turns++ : kind == kAck ? user.acks() : user.messages()) >= moment;
    };
    ASSERT_TRUE(loop.RunUntil(reached, Deadline()));
    user.End(first, rng.Chance(0.5));

    // What was on its way comes while the neighbour's traffic does.
    const int64_t seen = neighbour.messages();
    ASSERT_TRUE(loop.RunUntil([&] { return neighbour.messages() >= seen + 5; }, Deadline()));
    ASSERT_FALSE(HasFailure());
  }
  neighbour.End(First::kProducer, true);
  loop.RunOnce();
}

TEST_F(SessionEnd, OfAProducerAndAConsumerUnderTrafficInEitherOrder) {
  for (int32_t round = 0; round < 16; ++round) {
    Rng rng = Rng(static_cast<uint64_t>(round)).Fork("moment");
    const int64_t moment = rng.Between(0, 60);
    const First first = round % 2 == 0 ? First::kProducer : First::kConsumer;
    SCOPED_TRACE("round " + std::to_string(round) + ": message " + std::to_string(moment));

    std::atomic<int64_t> published = 0, acks = 0;
    producer::Options to;
    to.cell = cell_.address();
    to.stream = kStream;
    to.shards = {round};
    to.profile = producer::Profile::kLowLatency;
    to.roll_bytes = 2000;
    auto producer = producer::Producer::Open(to);
    ASSERT_TRUE(producer.ok()) << producer.status();
    const auto publish = [&] {
      const Status taken = (*producer)->Publish(
          std::string(300, 'x'), [&](const producer::Ack&) { ++acks; }, round);
      ASSERT_TRUE(taken.ok()) << taken;
      ++published;
    };
    consumer::Options from;
    from.cell = cell_.address();
    from.stream = kStream;
    from.shards = {round};
    from.profile = consumer::Profile::kLowLatency;
    auto consumer = consumer::Consumer::Open(from);
    ASSERT_TRUE(consumer.ok()) << consumer.status();

    for (int64_t messages = 0; messages < moment;) {
      for (int i = 0; i < 3; ++i) publish();
      const auto batch = (*consumer)->Poll(Duration::Seconds(60));
      ASSERT_TRUE(batch.ok()) << batch.status();
      ASSERT_FALSE(batch->empty());
      messages += static_cast<int64_t>(batch->size());
    }
    for (int i = 0; i < 3; ++i) publish();
    if (first == First::kProducer) {
      producer->reset();
      EXPECT_TRUE((*consumer)->Poll(Duration()).ok());
      consumer->reset();
    } else {
      consumer->reset();
      publish();
      producer->reset();
    }
    ASSERT_EQ(acks, published);
  }
}

}  // namespace
}  // namespace tailcast::session
