// A shard in the deterministic world, for tests: producers and consumers on virtual loops, over one
// fake disk and one in-process cache, and an oracle that knows what each of them may see.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/memory_cache.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::consumer {

// A process of the cell: its loop and its ports.
struct TestProcess {
  TestProcess(sim::VirtualTime& time, storage::FakeDisk& disk, cache::MemoryStore& data,
              cache::MemoryStore& metadata, const std::string& name)
      : loop(time.MakeLoop(name)),
        store(std::make_unique<storage::FakeStore>(&disk, loop.get())),
        data_client(std::make_unique<cache::MemoryClient>(loop.get(), &data)),
        metadata_client(std::make_unique<cache::MemoryClient>(loop.get(), &metadata)) {}
  stream::CellPorts ports() {
    return {loop.get(), store.get(), data_client.get(), metadata_client.get()};
  }
  std::unique_ptr<sim::SimLoop> loop;
  std::unique_ptr<storage::FakeStore> store;
  std::unique_ptr<cache::MemoryClient> data_client;
  std::unique_ptr<cache::MemoryClient> metadata_client;
};

class DeliveryWorld {
 public:
  // What became of a published message.
  enum class Fate : uint8_t { kPending, kDurable, kFailed, kUnknown };
  struct Published {
    Fate fate = Fate::kPending;
    stream::Position position;
  };

  struct Producer {
    int number = 0;
    std::unique_ptr<TestProcess> process;
    std::unique_ptr<producer::ProducerAgent> agent;
    std::optional<Status> opened;
    std::optional<Status> closed;
    int64_t published = 0;
    int64_t refused = 0;
    bool dead = false;
  };
  struct Consumer {
    std::unique_ptr<TestProcess> process;
    std::unique_ptr<ConsumerAgent> agent;
    std::vector<std::string> got;
    std::vector<int64_t> numbers;
    int64_t next_number = -1;
    int64_t next_byte = -1;
    bool holds = false;
    std::string broken;  // the first violation seen
    size_t checked = 0;  // of `got`, by the steps of a sweep
  };

  explicit DeliveryWorld(uint64_t seed, storage::FakeDiskOptions disk_options = {})
      : time(seed),
        rng(seed ^ 0x5eed),
        disk_loop(time.MakeLoop("disk")),
        disk(disk_loop.get(), seed, disk_options),
        data(seed + 1),
        metadata(seed + 2) {}

  // Messages without an outcome get theirs while there is still somebody to tell.
  ~DeliveryWorld() {
    producers.clear();
    consumers.clear();
  }
  DeliveryWorld(const DeliveryWorld&) = delete;
  DeliveryWorld& operator=(const DeliveryWorld&) = delete;

  producer::AgentOptions ProducerOptions() const {
    producer::AgentOptions options;
    options.flush_interval = Duration::Millis(1);
    options.chunk_size = 256;
    options.roll_bytes = 3000;
    return options;
  }
  AgentOptions ConsumerOptions() const {
    AgentOptions options;
    options.poll = Duration::Millis(10);
    options.doorbell = true;
    options.window_bytes = 4096;
    options.chunk_size = 256;
    return options;
  }

  Producer& StartProducer(producer::AgentOptions options) {
    auto p = std::make_unique<Producer>();
    p->number = static_cast<int>(producers.size());
    p->process = std::make_unique<TestProcess>(time, disk, data, metadata,
                                               "producer-" + std::to_string(p->number));
    p->agent = std::make_unique<producer::ProducerAgent>(
        p->process->ports(), shard, options, producer::ProducerAgent::Hooks{}, rng.Next());
    Producer* const raw = p.get();
    producers.push_back(std::move(p));
    raw->agent->Open(scope_.Bind([raw](Status status) { raw->opened = std::move(status); }));
    return *raw;
  }
  // Opens and waits for the outcome.
  Producer& OpenProducer(producer::AgentOptions options) {
    Producer& p = StartProducer(options);
    EXPECT_TRUE(time.RunUntil([&] { return p.opened.has_value(); }, Duration::Seconds(120)));
    return p;
  }
  // A message that names its publisher and number and is `size` bytes long or a little more.
  std::string MakeMessage(int producer, int64_t number, int64_t size) const {
    std::string text = std::to_string(producer) + ":" + std::to_string(number) + ":";
    while (static_cast<int64_t>(text.size()) < size) {
      text.push_back(static_cast<char>('a' + (text.size() * 7 + static_cast<size_t>(number)) % 26));
    }
    return text;
  }
  Status Publish(Producer& p, int64_t size) {
    const std::pair<int, int64_t> id{p.number, p.published};
    const std::string message = MakeMessage(p.number, p.published, size);
    published[id] = {};
    Status status = p.agent->Publish(message, [this, id](const producer::Ack& ack) {
      Published& entry = published[id];
      EXPECT_EQ(entry.fate, Fate::kPending) << "acknowledged twice";
      entry.fate = ack.outcome == producer::AckOutcome::kDurable  ? Fate::kDurable
                   : ack.outcome == producer::AckOutcome::kFailed ? Fate::kFailed
                                                                  : Fate::kUnknown;
      entry.position = ack.position;
      --pending_;
      durable_ += entry.fate == Fate::kDurable;
    });
    if (status.ok()) {
      sizes[id] = static_cast<int64_t>(message.size());
      ++p.published;
      ++pending_;
    } else {
      published.erase(id);
      ++p.refused;
    }
    return status;
  }
  // kill -9. What was not acknowledged may or may not be in the stream.
  void Kill(Producer& p) {
    p.dead = true;
    p.process->loop->Kill();
    for (auto& [id, entry] : published) {
      if (id.first != p.number || entry.fate != Fate::kPending) continue;
      entry.fate = Fate::kUnknown;
      --pending_;
    }
    // The agent would acknowledge its messages once more.
    auto keep = std::exchange(published, {});
    const auto counts = std::pair(pending_, durable_);
    p.agent.reset();
    std::tie(pending_, durable_) = counts;
    published = std::move(keep);
    p.process->store.reset();
    p.process->data_client.reset();
    p.process->metadata_client.reset();
  }

  Consumer& StartConsumer(AgentOptions options, StartPoint start = StartPoint::Beginning()) {
    auto c = std::make_unique<Consumer>();
    c->process = std::make_unique<TestProcess>(time, disk, data, metadata,
                                               "consumer-" + std::to_string(consumers.size()));
    Consumer* const raw = c.get();
    c->agent = std::make_unique<ConsumerAgent>(c->process->ports(), shard, options,
                                               scope_.Bind([this, raw] { Drain(*raw); }));
    consumers.push_back(std::move(c));
    raw->agent->Start(start);
    return *raw;
  }
  // Takes what is ready; now and then keeps the views for a while before it lets go.
  void Drain(Consumer& c) {
    if (c.holds) return;
    std::vector<Message> messages;
    while (c.agent->Take(messages, 1 + static_cast<int64_t>(rng.Below(4000))) > 0) {
      for (const Message& m : messages) {
        if (c.next_number >= 0 && m.number != c.next_number) {
          c.broken =
              "message " + std::to_string(m.number) + " after " + std::to_string(c.next_number - 1);
        }
        if (c.next_byte >= 0 && m.byte != c.next_byte) c.broken = "byte " + std::to_string(m.byte);
        c.next_number = m.number + 1;
        c.next_byte = m.byte + static_cast<int64_t>(m.payload.size());
      }
      if (rng.Chance(0.1)) {
        // The user works for a while; its views must not change under it.
        c.holds = true;
        std::vector<std::string> copies;
        for (const Message& m : messages) copies.emplace_back(m.payload);
        c.process->loop->After(Duration::Micros(static_cast<int64_t>(rng.Below(20000))),
                               scope_.Bind([this, &c, messages, copies] {
                                 for (size_t i = 0; i < messages.size(); ++i) {
                                   if (messages[i].payload != copies[i])
                                     c.broken = "a view changed while it was held";
                                   c.got.push_back(copies[i]);
                                   c.numbers.push_back(messages[i].number);
                                 }
                                 c.holds = false;
                                 c.agent->Release();
                                 Drain(c);
                               }));
        return;
      }
      for (const Message& m : messages) {
        c.got.emplace_back(m.payload);
        c.numbers.push_back(m.number);
      }
      messages.clear();
      c.agent->Release();
    }
  }

  bool AllSettled() const { return pending_ == 0; }
  // The messages that must be in the stream, by their texts.
  int64_t durable() const { return durable_; }

  // "" if what `c` got may be given to a consumer from the beginning now; else what is wrong. Looks
  // at messages `from` and later only.
  std::string Violation(const Consumer& c, size_t from = 0) const {
    if (!c.broken.empty()) return c.broken;
    if (c.agent->state() == AgentState::kFailed) return c.agent->status().ToString();
    std::map<int, int64_t> last;
    for (size_t i = from; i < c.got.size(); ++i) {
      const std::string& text = c.got[i];
      int number = 0;
      long long message = 0;
      if (std::sscanf(text.c_str(), "%d:%lld:", &number, &message) != 2) return "foreign bytes";
      const auto it = published.find({number, message});
      if (it == published.end()) return "never published: " + text.substr(0, 20);
      const auto size = sizes.at({number, message});
      if (text != MakeMessage(number, message, size)) return "wrong bytes in " + text.substr(0, 20);
      if (it->second.fate == Fate::kFailed) return "reported failed: " + text.substr(0, 20);
      if (it->second.fate == Fate::kDurable && it->second.position.number != c.numbers[i]) {
        return text.substr(0, 20) + " at message " + std::to_string(c.numbers[i]) +
               ", acknowledged at " + it->second.position.ToString();
      }
      if (last.contains(number) && message <= last[number])
        return "out of order: " + text.substr(0, 20);
      last[number] = message;
    }
    return "";
  }
  // The same, and everything durable is there.
  std::string Incomplete(const Consumer& c) const {
    if (std::string violation = Violation(c); !violation.empty()) return violation;
    std::set<std::string> got(c.got.begin(), c.got.end());
    for (const auto& [id, entry] : published) {
      if (entry.fate != Fate::kDurable) continue;
      if (!got.contains(MakeMessage(id.first, id.second, sizes.at(id)))) {
        return "lost: " + std::to_string(id.first) + ":" + std::to_string(id.second) +
               "; consumer " + c.agent->DebugString() + " after " + std::to_string(c.got.size()) +
               "; " + std::to_string(c.agent->counters().fetches) + " fetches, " +
               std::to_string(c.agent->counters().short_reads) + " short, " +
               std::to_string(c.agent->counters().primary_errors) + " errors" +
               (c.holds ? ", user holds" : "");
      }
    }
    return "";
  }

  sim::VirtualTime time;
  Rng rng;
  std::unique_ptr<sim::SimLoop> disk_loop;
  storage::FakeDisk disk;
  cache::MemoryStore data;
  cache::MemoryStore metadata;
  const stream::ShardId shard{{"s", 77}, 0};
  std::vector<std::unique_ptr<Producer>> producers;
  std::vector<std::unique_ptr<Consumer>> consumers;
  std::map<std::pair<int, int64_t>, Published> published;
  std::map<std::pair<int, int64_t>, int64_t> sizes;

 private:
  int64_t pending_ = 0;
  int64_t durable_ = 0;
  const Scope scope_;
};

}  // namespace tailcast::consumer
