// The load of `tailcast load` for a Kafka broker, by librdkafka: paced and measured by the same
// code (src/app/load_measure.h), and with the same lines of JSON, so that bench/e2e/run.py can put
// the two side by side.
//
//   e2e_kafka_load create  --brokers HOST:PORT --topic T --partitions N
//   e2e_kafka_load produce --brokers HOST:PORT --topic T [--mb-per-s 4] [--seconds 10]
//   e2e_kafka_load consume --brokers HOST:PORT --topic T [--threads 1] [--warmup 2] [--until-idle S]
//   e2e_kafka_load delete  --brokers HOST:PORT --topic T
//
// The library's defaults stay as they are: they are good ones (linger 5 ms, the sticky partitioner,
// queues of 100,000 messages and 64 MB; with smaller ones it stops fetching for a second when they
// are full). A consumer is assigned all partitions from their beginning, and commits nothing: each
// reads everything, and there is no group to balance.
#include <librdkafka/rdkafka.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tailcast/app/load_measure.h"
#include "tailcast/base/histogram.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/base/time.h"

namespace tailcast::bench {
namespace {

constexpr int kAdminTimeoutMs = 30000;
constexpr int kPollMs = 200;
constexpr size_t kBatch = 512;

struct Options {
  std::string brokers, topic;
  int partitions = 1;
  app::LoadPace pace;
  int threads = 1;
  double warmup_s = 2;
  double until_idle_s = 0;
};

volatile std::sig_atomic_t interrupted = 0;

[[noreturn]] void Die(const std::string& message) {
  std::cerr << "e2e_kafka_load: " << message << std::endl;
  std::_Exit(1);
}

void Print(const nlohmann::json& json) {
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

// The library's objects, owned.
struct Destroy {
  void operator()(rd_kafka_t* handle) const { rd_kafka_destroy(handle); }
  void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
  void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
  void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
  void operator()(rd_kafka_topic_partition_list_t* list) const {
    rd_kafka_topic_partition_list_destroy(list);
  }
  void operator()(const rd_kafka_metadata_t* metadata) const {
    rd_kafka_metadata_destroy(metadata);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

using Settings = std::vector<std::pair<const char*, const char*>>;

Owned<rd_kafka_t> Connect(rd_kafka_type_t type, const Options& options, const Settings& settings,
                          void (*on_delivery)(rd_kafka_t*, const rd_kafka_message_t*,
                                              void*) = nullptr,
                          void* opaque = nullptr) {
  char error[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  const auto set = [&](const char* name, const char* value) {
    if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) != RD_KAFKA_CONF_OK) Die(error);
  };
  set("bootstrap.servers", options.brokers.c_str());
  for (const auto& [name, value] : settings) set(name, value);
  if (on_delivery != nullptr) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
  rd_kafka_conf_set_opaque(conf, opaque);
  Owned<rd_kafka_t> handle(rd_kafka_new(type, conf, error, sizeof(error)));
  if (handle == nullptr) Die(error);
  return handle;
}

// The answer to an administrative request.
Owned<rd_kafka_event_t> Answer(rd_kafka_queue_t* queue) {
  Owned<rd_kafka_event_t> event(rd_kafka_queue_poll(queue, kAdminTimeoutMs));
  if (event == nullptr) Die("the broker does not answer");
  if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    Die(rd_kafka_event_error_string(event.get()));
  }
  return event;
}

void CheckTopics(const rd_kafka_topic_result_t** topics, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (rd_kafka_topic_result_error(topics[i]) != RD_KAFKA_RESP_ERR_NO_ERROR) {
      Die(rd_kafka_err2str(rd_kafka_topic_result_error(topics[i])));
    }
  }
}

// How many partitions the topic has; 0 while the broker does not know it.
int PartitionsOf(rd_kafka_t* handle, const Options& options) {
  const Owned<rd_kafka_topic_t> topic(rd_kafka_topic_new(handle, options.topic.c_str(), nullptr));
  const rd_kafka_metadata_t* answer = nullptr;
  if (rd_kafka_metadata(handle, 0, topic.get(), &answer, kAdminTimeoutMs) !=
      RD_KAFKA_RESP_ERR_NO_ERROR) {
    return 0;
  }
  const Owned<const rd_kafka_metadata_t> metadata(answer);
  if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR) return 0;
  const auto* const partitions = metadata->topics[0].partitions;
  for (int i = 0; i < metadata->topics[0].partition_cnt; ++i) {
    if (partitions[i].leader < 0) return 0;
  }
  return metadata->topics[0].partition_cnt;
}

int Create(const Options& options) {
  const Owned<rd_kafka_t> handle = Connect(RD_KAFKA_PRODUCER, options, {});
  const Owned<rd_kafka_queue_t> queue(rd_kafka_queue_new(handle.get()));
  char error[512];
  rd_kafka_NewTopic_t* topic =
      rd_kafka_NewTopic_new(options.topic.c_str(), options.partitions, 1, error, sizeof(error));
  if (topic == nullptr) Die(error);
  rd_kafka_CreateTopics(handle.get(), &topic, 1, nullptr, queue.get());
  const Owned<rd_kafka_event_t> answer = Answer(queue.get());
  size_t count = 0;
  CheckTopics(
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(answer.get()), &count),
      count);
  rd_kafka_NewTopic_destroy(topic);
  // A broker takes clients for a topic a little later than it has acknowledged it.
  const MonotonicTime deadline = ReadMonotonicClock() + Duration::Seconds(30);
  while (PartitionsOf(handle.get(), options) != options.partitions) {
    if (ReadMonotonicClock() > deadline) Die("the broker has no leaders for the topic");
    usleep(10000);
  }
  return 0;
}

int Delete(const Options& options) {
  const Owned<rd_kafka_t> handle = Connect(RD_KAFKA_PRODUCER, options, {});
  const Owned<rd_kafka_queue_t> queue(rd_kafka_queue_new(handle.get()));
  rd_kafka_DeleteTopic_t* topic = rd_kafka_DeleteTopic_new(options.topic.c_str());
  rd_kafka_DeleteTopics(handle.get(), &topic, 1, nullptr, queue.get());
  const Owned<rd_kafka_event_t> answer = Answer(queue.get());
  size_t count = 0;
  CheckTopics(
      rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(answer.get()), &count),
      count);
  rd_kafka_DeleteTopic_destroy(topic);
  return 0;
}

// Written by the thread that polls for reports.
struct Acks {
  int64_t durable = 0, other = 0;
  Histogram delay;
};

int Produce(const Options& options) {
  RunBeforeOthers();  // as tailcast's producer, and so do the threads of librdkafka
  Acks acks;
  const Owned<rd_kafka_t> handle = Connect(
      RD_KAFKA_PRODUCER, options, {},
      [](rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
        Acks& to = *static_cast<Acks*>(opaque);
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
          ++to.other;
          return;
        }
        ++to.durable;
        int64_t due = 0;  // what a message begins with (src/app/load_pattern.h)
        std::memcpy(&due, message->payload, sizeof(due));
        to.delay.Record(ReadWallClock().micros() - due);
      },
      &acks);
  const Owned<rd_kafka_topic_t> topic(
      rd_kafka_topic_new(handle.get(), options.topic.c_str(), nullptr));
  std::atomic<bool> flushed{false};
  std::thread reports([&] {
    while (!flushed) rd_kafka_poll(handle.get(), 100);
  });
  std::string error;
  const app::LoadSent sent = app::SendLoad(
      options.pace, [] { return interrupted != 0; },
      [&](const std::string& message, int64_t) {
        for (;;) {
          if (rd_kafka_produce(topic.get(), RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY,
                               const_cast<char*>(message.data()), message.size(), nullptr, 0,
                               nullptr) == 0) {
            return true;
          }
          if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL || interrupted != 0) break;
          usleep(500);  // until reports have made room
        }
        error = rd_kafka_err2str(rd_kafka_last_error());
        return false;
      });
  if (rd_kafka_flush(handle.get(), 60000) != RD_KAFKA_RESP_ERR_NO_ERROR && error.empty()) {
    error = "not all that was produced was acknowledged within a minute";
  }
  flushed = true;
  reports.join();
  const double elapsed = static_cast<double>(ReadWallClock().micros() - sent.start_us) / 1e6;
  if (acks.other > 0 && error.empty())
    error = std::to_string(acks.other) + " messages were refused";
  Print({{"kind", "produce"},
         {"messages", sent.messages},
         {"durable", acks.durable},
         {"not_durable", acks.other},
         {"bytes", static_cast<int64_t>(sent.messages) * options.pace.message_bytes},
         {"seconds", elapsed},
         {"asked_mb_per_s", options.pace.megabytes_per_second},
         {"held_mb_per_s",
          static_cast<double>(acks.durable * options.pace.message_bytes) / elapsed / 1e6},
         {"publish_late_max_us", sent.late_max_us},
         {"publish_seconds", static_cast<double>(sent.end_us - sent.start_us) / 1e6},
         {"acknowledge_us", nlohmann::json::parse(acks.delay.ToJson())},
         {"cpu_s", app::CpuSecondsOfProcess()},
         {"error", error}});
  return error.empty() ? 0 : 1;
}

struct Seen {
  Seen(double warmup_s, int partitions) : load(warmup_s, static_cast<size_t>(partitions)) {}
  app::LoadSeen load;
  std::string error;
};

void ConsumeOne(const Options& options, int partitions, std::atomic<int>& ready, Seen& seen) {
  // With the ends of partitions it is known when all of them are being read.
  const Owned<rd_kafka_t> handle = Connect(
      RD_KAFKA_CONSUMER, options,
      {{"group.id", "load"}, {"enable.auto.commit", "false"}, {"enable.partition.eof", "true"}});
  rd_kafka_poll_set_consumer(handle.get());
  const Owned<rd_kafka_topic_partition_list_t> list(rd_kafka_topic_partition_list_new(partitions));
  for (int i = 0; i < partitions; ++i) {
    rd_kafka_topic_partition_list_add(list.get(), options.topic.c_str(), i)->offset =
        RD_KAFKA_OFFSET_BEGINNING;
  }
  rd_kafka_assign(handle.get(), list.get());
  const Owned<rd_kafka_queue_t> queue(rd_kafka_queue_get_consumer(handle.get()));
  std::set<int32_t> at_end;
  MonotonicTime last = ReadMonotonicClock();
  std::array<rd_kafka_message_t*, kBatch> messages;
  while (interrupted == 0 && seen.error.empty()) {
    messages[0] = rd_kafka_consumer_poll(handle.get(), kPollMs);
    if (messages[0] == nullptr) {
      const Duration idle = ReadMonotonicClock() - last;
      if (seen.load.started() && options.until_idle_s > 0 &&
          idle.seconds() >= options.until_idle_s) {
        break;
      }
      continue;
    }
    // What else is there already: the call waits only for the first one.
    const ssize_t more =
        rd_kafka_consume_batch_queue(queue.get(), 0, messages.data() + 1, kBatch - 1);
    const size_t count = 1 + static_cast<size_t>(std::max<ssize_t>(more, 0));
    const int64_t now = ReadWallClock().micros();
    for (size_t i = 0; i < count; ++i) {
      const rd_kafka_message_t& message = *messages[i];
      if (message.err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        seen.load.OnMessage({static_cast<const char*>(message.payload), message.len}, now,
                            static_cast<size_t>(message.partition));
        last = ReadMonotonicClock();
      } else if (message.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (at_end.insert(message.partition).second &&
            at_end.size() == static_cast<size_t>(partitions)) {
          ++ready;
        }
      } else {
        seen.error = rd_kafka_message_errstr(&message);
      }
      rd_kafka_message_destroy(messages[i]);
    }
    seen.load.OnBatch();
  }
  if (at_end.size() < static_cast<size_t>(partitions)) ++ready;  // it will not be any more
}

int Consume(const Options& options) {
  int partitions = 0;
  {
    const Owned<rd_kafka_t> handle = Connect(RD_KAFKA_PRODUCER, options, {});
    partitions = PartitionsOf(handle.get(), options);
  }
  if (partitions == 0) Die("there is no topic " + options.topic);
  std::deque<Seen> seen;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, to = &seen.emplace_back(options.warmup_s, partitions)] {
      ConsumeOne(options, partitions, ready, *to);
    });
  }
  // Whoever starts the producer waits for this line.
  while (ready < options.threads && interrupted == 0) usleep(5000);
  Print({{"kind", "ready"}, {"pid", getpid()}, {"consumers", options.threads}});
  for (std::thread& thread : threads) thread.join();

  app::LoadTotal total;
  std::string error;
  for (const Seen& s : seen) {
    total.Add(s.load);
    if (error.empty()) error = s.error;
  }
  nlohmann::json json = total.ToJson();
  json.update({{"error", error}});
  Print(json);
  return error.empty() && total.intact() ? 0 : 1;
}

int Main(int count, char** arguments) {
  CLI::App app("Generate and measure load for a Kafka broker, open loop");
  app.require_subcommand(1);
  Options options;
  int (*run)(const Options&) = nullptr;
  const auto add = [&](const char* name, const char* about, int (*function)(const Options&)) {
    CLI::App* command = app.add_subcommand(name, about);
    command->add_option("--brokers", options.brokers, "host:port")->required();
    command->add_option("--topic", options.topic, "Topic")->required();
    command->callback([&run, function] { run = function; });
    return command;
  };
  add("create", "Create a topic and wait for it", Create)
      ->add_option("--partitions", options.partitions, "Partitions")
      ->check(CLI::Range(1, 1000));
  add("delete", "Delete a topic", Delete);
  CLI::App* produce = add("produce", "Produce at a fixed rate", Produce);
  produce->add_option("--mb-per-s", options.pace.megabytes_per_second,
                      "10^6 bytes per second; 0: as fast as possible");
  produce->add_option("--message-bytes", options.pace.message_bytes, "Size of a message")
      ->check(CLI::Range(16, 1 << 20));
  produce->add_option("--seconds", options.pace.seconds, "How long");
  CLI::App* consume = add("consume", "Read and check until Ctrl-C or idle", Consume);
  consume->add_option("--threads", options.threads, "Consumers")->check(CLI::Range(1, 1024));
  consume->add_option("--until-idle", options.until_idle_s, "End after so many seconds of silence");
  consume->add_option("--warmup", options.warmup_s, "Seconds of the load that are not measured");
  CLI11_PARSE(app, count, arguments);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  return run(options);
}

}  // namespace
}  // namespace tailcast::bench

int main(int count, char** arguments) { return tailcast::bench::Main(count, arguments); }
