// The users of a simulated deployment: producers that publish to one shard, consumers that read it,
// and a ledger of what was published and what became of it.
//
//   Workload load(deployment, shard);
//   auto& p = load.Open("cell", options);            // a producer's process, its agent opened
//   auto& c = load.Consume("cell", consumer_options);
//   load.Publish(p, 100);
//   load.Violation(c)                                // "": what it got so far may be given to it
//   load.Incomplete(c)                               // "": and nothing durable is missing
//
// A message names its producer and its number, and is filled with what follows from those, so that
// any byte that a consumer gets can be judged.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/world/deployment.h"

namespace tailcast::world {

class Workload {
 public:
  // What became of a published message.
  enum class Fate : uint8_t { kPending, kDurable, kFailed, kUnknown };
  struct Published {
    Fate fate = Fate::kPending;
    stream::Position position;  // if durable
    int64_t size = 0;
    MonotonicTime at;  // when it was published
  };
  using MessageId = std::pair<int, int64_t>;  // producer, number

  struct Producer {
    int number = 0;
    Process* process = nullptr;  // null once it is dead
    std::optional<Status> opened;
    std::optional<Status> closed;
    int64_t published = 0;
    int64_t refused = 0;
    bool dead() const { return process == nullptr; }
    producer::ProducerAgent* agent() const { return process->producer.get(); }
  };
  struct Consumer {
    std::string name;
    Process* process = nullptr;
    std::vector<std::string> got;
    std::vector<int64_t> numbers;  // of the messages in the shard
    std::vector<MonotonicTime> got_at;
    MonotonicTime since;  // it exists
    int64_t next_number = -1;
    int64_t next_byte = -1;
    bool holds = false;  // views, before it lets go of them
    std::string broken;  // the first violation that it saw itself
    // Messages, from and to, that were kept no more when it came there: it was told so.
    std::vector<std::pair<int64_t, int64_t>> passed;
    size_t checked = 0;  // of `got`
    bool from_beginning = true;
    consumer::AgentOptions options;
    // What it has kept for its next life: where, and how much of `got` that covers.
    std::optional<stream::Position> saved;
    size_t saved_got = 0;
    bool resumes = false;  // in a new process, which has no agent yet
    consumer::ConsumerAgent* agent() const { return process->consumer.get(); }
  };

  // `deployment` outlives it. `suffix`: of the names of the users' processes.
  Workload(Deployment& deployment, stream::ShardId shard, std::string suffix = "");
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // A producer's process, and its ports. Its agent is made by Open, when the ports are ready (the
  // cell's view has come, say).
  Producer& AddProducer(const std::string& cell, Program ports);
  void Open(Producer& p, producer::AgentOptions options);
  Consumer& AddConsumer(const std::string& cell, Program ports);
  void Start(Consumer& c, consumer::AgentOptions options,
             consumer::StartPoint start = consumer::StartPoint::Beginning());

  // Publishes a message of `size` bytes, its headers included, or a little more.
  Status Publish(Producer& p, int64_t size);
  // kill -9. What was not acknowledged may or may not be in the stream.
  void Kill(Producer& p);
  // kill -9, and a new process, with a new agent as soon as `ready` says so: it goes on where the
  // old one had last saved its position, which may be some messages back.
  void Restart(Consumer& c, Program ports);
  void ResumeThose(const std::function<bool(const Process&)>& ready);
  // Where one stands now that has had no message yet; what lies before is kept no more.
  void NoteBeginning(Consumer& c);
  // Its agent has failed because what it wants next is kept no more: another one goes on where the
  // first one says that messages are.
  void GoOnBehind(Consumer& c);

  // The payload of a message that has `size` bytes with its headers, or a little more.
  static std::string MakeMessage(int producer, int64_t number, int64_t size);
  // Of a message that was made so; nullopt: it was not.
  static std::optional<MessageId> IdOf(std::string_view message);
  // Encoded: of every third message.
  static std::string HeadersOf(const MessageId& id);

  bool AllSettled() const { return pending_ == 0; }
  int64_t durable() const { return durable_; }  // messages that must be in the stream
  int64_t failed() const { return failed_; }    // acknowledged, and not as durable
  // Every consumer has had so many messages of the shard that nothing durable can be missing.
  bool AllGot() const;

  // "" if what `c` got may be given to a consumer from the beginning now; else what is wrong. Looks
  // at messages `from` and later only.
  std::string Violation(const Consumer& c, size_t from = 0) const;
  // Violation of what came since the last call.
  std::string NewViolation(Consumer& c) const;
  // Violation of everything, and whether everything durable is there.
  std::string Incomplete(const Consumer& c) const;

  stream::ShardId shard;
  bool files_go = false;  // by retention: who begins at the beginning begins at what is kept
  std::vector<std::unique_ptr<Producer>> producers;
  std::vector<std::unique_ptr<Consumer>> consumers;
  std::map<MessageId, Published> published;

 private:
  // As the libraries do.
  void WatchStream(Process& process, std::function<void(const Status&)> deleted);
  void Settle(const MessageId& id, const producer::Ack& ack);
  // Takes what is ready; now and then keeps the views for a while before it lets go.
  void Drain(Consumer& c);
  void Keep(Consumer& c, const std::vector<consumer::Message>& messages);
  void Save(Consumer& c);
  static void Pass(Consumer& c, const stream::Position& to);
  static bool Passed(const Consumer& c, int64_t number);

  Deployment& deployment_;
  const std::string suffix_;
  Rng rng_;
  int64_t last_durable_ = -1;  // number in the shard
  int64_t pending_ = 0;
  int64_t durable_ = 0;
  int64_t failed_ = 0;
  std::string acknowledged_twice_;
  Scope scope_;
};

}  // namespace tailcast::world
