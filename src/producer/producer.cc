#include "tailcast/producer/producer.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/producer/notify.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/session/session.h"

namespace tailcast::producer {
class Producer::Impl {
 public:
  // What callers write into, and the loop takes from. One per shard.
  struct Shard {
    int32_t number = 0;
    std::unique_ptr<ProducerAgent> agent;  // loop only
    // Guarded by mutex_:
    Batch intake;
    int64_t bytes = 0;     // payload bytes taken from callers and not acknowledged
    int64_t messages = 0;  // the same, messages
    bool posted = false;   // the loop was told that the intake is not empty
    bool stopped = false;
    Status status;  // why
  };

  explicit Impl(Options options) : options_(std::move(options)) {}
  ~Impl() { (void)Close(Duration()); }

  Status Open() {
    const auto deadline = ReadMonotonicClock() + options_.open_timeout;
    if (options_.cell.empty()) {
      return InvalidArgumentError("Options::cell is empty: give the scheduler's host:port");
    }
    thread_ = std::make_unique<LoopThread>("producer");
    loop_ = thread_->loop();
    Status status;
    Call(
        [&](Callback<void(Status)> done) {
          session_ =
              std::make_unique<session::Session>(thread_->loop(), session::Options{options_.cell});
          session_->Start(options_.open_timeout, std::move(done));
        },
        &status);
    if (!status.ok()) return status;
    v1::StreamConfig config;
    OnLoop([&] {
      auto found = session_->cell().FindStream(options_.stream);
      status = found.status();
      if (found.ok()) config = *found;
      if (status.ok() && config.source() != session_->cell().view().cell()) {
        status = FailedPreconditionError(
            "stream '" + options_.stream + "' is produced in cell " + config.source() +
            ", not in " + session_->cell().view().cell() + ": open the producer there");
      }
    });
    if (!status.ok()) return status;
    return OpenShards(session_->ports(), {config.name(), config.incarnation()}, config.shards(),
                      config.chunk_size(), deadline);
  }

  Status OpenOn(const stream::CellPorts& ports, const stream::StreamId& stream, int32_t shards,
                int64_t chunk_size) {
    loop_ = ports.loop;
    return OpenShards(ports, stream, shards, chunk_size,
                      ReadMonotonicClock() + options_.open_timeout);
  }

  Status OpenShards(const stream::CellPorts& ports, const stream::StreamId& stream, int32_t count,
                    int64_t chunk_size, MonotonicTime deadline) {
    shard_count_ = count;
    std::vector<int32_t> numbers = options_.shards;
    if (numbers.empty()) {
      for (int32_t i = 0; i < count; ++i) numbers.push_back(i);
    }
    for (int32_t number : numbers) {
      if (number < 0 || number >= count) {
        return InvalidArgumentError("stream '" + stream.name + "' has shards 0 to " +
                                    std::to_string(count - 1) + "; there is no shard " +
                                    std::to_string(number));
      }
    }
    AgentOptions agent;
    agent.flush_interval =
        options_.profile == Profile::kLowLatency ? kLowLatencyFlushInterval : Duration::Millis(100);
    if (options_.flush_interval > Duration()) agent.flush_interval = options_.flush_interval;
    agent.flush_bytes = options_.flush_bytes;
    // The intake in front of it is what bounds memory.
    agent.buffer_bytes_max = INT64_MAX;
    agent.message_bytes_max = options_.message_bytes_max;
    if (chunk_size > 0) agent.chunk_size = chunk_size;
    agent.roll_bytes = options_.roll_bytes;
    agent.roll_age = options_.roll_age;
    agent.takeover = options_.takeover;
    agent.give_up = options_.give_up;
    struct Opening {
      std::mutex mutex;
      std::condition_variable changed;
      size_t left = 0;
      Status status;
    };
    auto opening = std::make_shared<Opening>();
    opening->left = numbers.size();
    for (int32_t number : numbers) {
      if (shards_.contains(number)) {
        --opening->left;
        continue;
      }
      auto shard = std::make_unique<Shard>();
      shard->number = number;
      numbers_.push_back(number);
      shards_[number] = std::move(shard);
    }
    OnLoop([&] {
      for (auto& [number, shard] : shards_) {
        ProducerAgent::Hooks hooks;
        Shard* const raw = shard.get();
        hooks.on_progress = [this, raw] { Feed(*raw); };
        if (session_) {
          hooks.notify = [this](const FileEvent& event, Callback<void(Status)> done) {
            NotifyScheduler(session_->cell(), event, std::move(done));
          };
        }
        shard->agent = std::make_unique<ProducerAgent>(ports, stream::ShardId{stream, number},
                                                       agent, std::move(hooks), RandomSeed());
        shard->agent->Open([opening](Status status) {
          std::lock_guard lock(opening->mutex);
          --opening->left;
          if (!status.ok() && opening->status.ok()) opening->status = std::move(status);
          opening->changed.notify_all();
        });
      }
    });
    std::unique_lock lock(opening->mutex);
    while (opening->left > 0 && opening->status.ok()) {
      const Duration left = deadline - ReadMonotonicClock();
      if (left <= Duration()) {
        return DeadlineExceededError("opening the shards of '" + stream.name +
                                     "' took longer than " +
                                     std::to_string(options_.open_timeout.millis()) + " ms");
      }
      opening->changed.wait_for(lock, std::chrono::microseconds(left.micros()));
    }
    return opening->status;
  }

  Status Add(std::string_view bytes, bool raw, AckCallback ack, int32_t number, bool wait) {
    const auto it = shards_.find(number);
    if (it == shards_.end()) {
      return InvalidArgumentError("this producer has no shard " + std::to_string(number));
    }
    Shard& shard = *it->second;
    const auto size = static_cast<int64_t>(bytes.size());
    if (!raw && size > options_.message_bytes_max) {
      return InvalidArgumentError(
          "a message of " + std::to_string(size) + " bytes is over the limit of " +
          std::to_string(options_.message_bytes_max) + " bytes (message_bytes_max)");
    }
    // Pieces and their check sums, outside of the lock.
    Record first;
    std::vector<Record> more;
    std::string_view rest = bytes;
    do {
      const size_t piece = std::min(rest.size(), static_cast<size_t>(options_.message_bytes_max));
      const Record record{static_cast<uint32_t>(piece), Crc32c(rest.substr(0, piece)), 0};
      if (rest.size() == bytes.size())
        first = record;
      else
        more.push_back(record);
      rest.remove_prefix(piece);
    } while (!rest.empty());
    bool post = false;
    {
      std::unique_lock lock(mutex_);
      for (;;) {
        if (closed_) return FailedPreconditionError("the producer is closed");
        if (shard.stopped) return shard.status;
        if (shard.bytes == 0 || shard.bytes + size <= options_.buffer_bytes_max) break;
        if (!wait) {
          return ResourceExhaustedError(
              "shard " + std::to_string(number) + ": " + std::to_string(shard.bytes) +
              " bytes wait for the primary layer, the limit is " +
              std::to_string(options_.buffer_bytes_max) + " (buffer_bytes_max)");
        }
        changed_.wait(lock);
      }
      shard.bytes += size;
      ++shard.messages;
      ++stats_.messages;
      stats_.bytes += size;
      // One time per message, under the lock: it never falls within a shard.
      first.time_us = ReadWallClock().micros();
      shard.intake.bytes.append(bytes);
      shard.intake.records.push_back(first);
      for (Record& record : more) {
        record.time_us = first.time_us;
        shard.intake.records.push_back(record);
      }
      const auto last = static_cast<uint32_t>(shard.intake.records.size() - 1);
      shard.intake.acks.emplace_back(
          last, [this, &shard, size, ack = std::move(ack)](const Ack& result) mutable {
            if (result.outcome != AckOutcome::kDurable) {
              // The shard has stopped. Whoever is told so must not find it open a moment later.
              std::lock_guard guard(mutex_);
              if (!shard.stopped) shard.status = result.error;
              shard.stopped = true;
            }
            if (ack) ack(result);
            std::lock_guard guard(mutex_);
            shard.bytes -= size;
            --shard.messages;
            ++(result.outcome == AckOutcome::kDurable  ? stats_.durable
               : result.outcome == AckOutcome::kFailed ? stats_.failed
                                                       : stats_.unknown);
          });
      post = !std::exchange(shard.posted, true);
    }
    if (post) {
      loop_->Post([this, &shard, alive = std::weak_ptr<bool>(alive_)] {
        if (!alive.expired()) Feed(shard);
      });
    }
    return OkStatus();
  }

  // On the loop: hands the intake to the agent and wakes who waits.
  void Feed(Shard& shard) {
    Batch batch;
    {
      std::lock_guard lock(mutex_);
      shard.posted = false;
      batch = std::exchange(shard.intake, Batch());
      if (shard.agent->state() == ProducerAgent::State::kStopped && !shard.stopped) {
        shard.stopped = true;
        shard.status = shard.agent->status().ok()
                           ? FailedPreconditionError("the producer is closed")
                           : shard.agent->status();
      }
    }
    if (!batch.records.empty()) {
      if (shard.stopped) {
        Ack ack;
        ack.outcome = AckOutcome::kFailed;
        ack.error = shard.status;
        for (auto& [index, callback] : batch.acks) callback(ack);
      } else {
        const Status status = shard.agent->Publish(std::move(batch));
        TAILCAST_CHECK(status.ok(), status.ToString());
      }
    }
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  Status Flush(Duration timeout) {
    loop_->Post([this, alive = std::weak_ptr<bool>(alive_)] {
      if (alive.expired()) return;
      for (auto& [number, shard] : shards_) {
        Feed(*shard);
        shard->agent->FlushSoon();
      }
    });
    const MonotonicTime deadline = ReadMonotonicClock() + timeout;
    std::unique_lock lock(mutex_);
    for (;;) {
      int64_t messages = 0;
      for (auto& [number, shard] : shards_) {
        messages += shard->messages;
        if (shard->stopped && !shard->status.ok() && !closed_) return shard->status;
      }
      if (messages == 0) return OkStatus();
      const Duration left = deadline - ReadMonotonicClock();
      if (left <= Duration()) {
        return DeadlineExceededError(std::to_string(messages) +
                                     " messages are not acknowledged after " +
                                     std::to_string(timeout.millis()) + " ms");
      }
      changed_.wait_for(lock, std::chrono::microseconds(left.micros()));
    }
  }

  Status Close(Duration timeout) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return close_status_;
      closed_ = true;
      changed_.notify_all();
    }
    Status status;
    if (timeout > Duration()) status = Flush(timeout);
    if (loop_ != nullptr) {
      struct Closing {
        std::mutex mutex;
        std::condition_variable changed;
        size_t left = 0;
        Status status;
      };
      auto closing = std::make_shared<Closing>();
      OnLoop([&] {
        for (auto& [number, shard] : shards_) {
          if (!shard->agent || timeout <= Duration() || !status.ok()) continue;
          ++closing->left;
          shard->agent->Close(std::min(timeout, Duration::Seconds(2)), [closing](Status s) {
            std::lock_guard lock(closing->mutex);
            --closing->left;
            if (closing->status.ok()) closing->status = std::move(s);
            closing->changed.notify_all();
          });
        }
      });
      {
        const MonotonicTime deadline = ReadMonotonicClock() + timeout + Duration::Seconds(3);
        std::unique_lock lock(closing->mutex);
        while (closing->left > 0) {
          const Duration left = deadline - ReadMonotonicClock();
          if (left <= Duration()) {
            closing->status = DeadlineExceededError("the files were not sealed in time");
            break;
          }
          closing->changed.wait_for(lock, std::chrono::microseconds(left.micros()));
        }
        if (status.ok()) status = closing->status;
      }
      // A turn of its own each: nothing is destroyed inside its own callback.
      OnLoop([&] {
        *alive_ = false;
        alive_.reset();
        for (auto& [number, shard] : shards_) {
          shard->agent.reset();
          Ack ack;
          ack.error = FailedPreconditionError("the producer is closed");
          ack.outcome = AckOutcome::kFailed;
          for (auto& [index, callback] : std::exchange(shard->intake, Batch()).acks) callback(ack);
        }
      });
      OnLoop([&] { session_.reset(); });
      thread_.reset();
    }
    std::lock_guard lock(mutex_);
    close_status_ = status;
    return status;
  }

  // Runs `task` on the loop and waits for it.
  void OnLoop(Task task) {
    if (thread_) {
      thread_->Call(std::move(task));
      return;
    }
    struct Done {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
    };
    auto done = std::make_shared<Done>();
    loop_->Post([&task, done] {
      task();
      std::lock_guard lock(done->mutex);
      done->done = true;
      done->changed.notify_all();
    });
    std::unique_lock lock(done->mutex);
    done->changed.wait(lock, [&] { return done->done; });
  }
  // Starts something on the loop and waits for its Status.
  void Call(UniqueFunction<void(Callback<void(Status)>)> start, Status* status) {
    struct Done {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
      Status status;
    };
    auto done = std::make_shared<Done>();
    OnLoop([&] {
      start([done](Status s) {
        std::lock_guard lock(done->mutex);
        done->status = std::move(s);
        done->done = true;
        done->changed.notify_all();
      });
    });
    std::unique_lock lock(done->mutex);
    done->changed.wait(lock, [&] { return done->done; });
    *status = done->status;
  }

  Stats GetStats() {
    Stats stats;
    {
      std::lock_guard lock(mutex_);
      stats = stats_;
      for (auto& [number, shard] : shards_) stats.buffered_bytes += shard->bytes;
      if (closed_) return stats;
    }
    OnLoop([&] {
      for (auto& [number, shard] : shards_) {
        if (!shard->agent) continue;
        const AgentCounters& counters = shard->agent->counters();
        stats.flushes += counters.flushes;
        stats.files_opened += counters.files_opened;
        stats.recoveries += counters.recoveries;
        stats.shadow_jumps += shard->agent->shadow_counters().jumps;
        stats.shadow_bytes += shard->agent->shadow_counters().chunk_bytes;
        stats.shadow_failures += shard->agent->shadow_counters().bulk_failures +
                                 shard->agent->shadow_counters().publish_failures;
      }
    });
    return stats;
  }

  const Options options_;
  int32_t shard_count_ = 1;
  std::vector<int32_t> numbers_;
  std::unique_ptr<LoopThread> thread_;  // null over a caller's ports
  EventLoop* loop_ = nullptr;
  std::unique_ptr<session::Session> session_;
  std::map<int32_t, std::unique_ptr<Shard>> shards_;  // fixed once open
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  Status close_status_;
  Stats stats_;
};

Producer::Producer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Producer::~Producer() = default;

Result<std::unique_ptr<Producer>> Producer::Open(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Producer>(new Producer(std::move(impl)));
}

Result<std::unique_ptr<Producer>> Producer::OpenOn(const stream::CellPorts& ports,
                                                   const stream::StreamId& stream, int32_t shards,
                                                   int64_t chunk_size, const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->OpenOn(ports, stream, shards, chunk_size));
  return std::unique_ptr<Producer>(new Producer(std::move(impl)));
}

Ack Producer::Publish(std::string_view payload, int32_t shard) {
  struct Done {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Ack> ack;
  };
  auto done = std::make_shared<Done>();
  const Status status = impl_->Add(
      payload, false,
      [done](const Ack& ack) {
        std::lock_guard lock(done->mutex);
        done->ack = ack;
        done->changed.notify_all();
      },
      shard, true);
  if (!status.ok()) return Ack{AckOutcome::kFailed, {}, status};
  std::unique_lock lock(done->mutex);
  done->changed.wait(lock, [&] { return done->ack.has_value(); });
  return *done->ack;
}

Status Producer::Publish(std::string_view payload, AckCallback ack, int32_t shard) {
  return impl_->Add(payload, false, std::move(ack), shard, true);
}

Status Producer::TryPublish(std::string_view payload, AckCallback ack, int32_t shard) {
  return impl_->Add(payload, false, std::move(ack), shard, false);
}

Status Producer::Append(std::string_view bytes, AckCallback ack, int32_t shard) {
  return impl_->Add(bytes, true, std::move(ack), shard, true);
}

int32_t Producer::ShardOf(std::string_view key) const {
  return static_cast<int32_t>(Hash128(key).lo % static_cast<uint64_t>(impl_->shard_count_));
}

Status Producer::Flush(Duration timeout) { return impl_->Flush(timeout); }
Status Producer::Close(Duration timeout) { return impl_->Close(timeout); }
const std::vector<int32_t>& Producer::shards() const { return impl_->numbers_; }
Stats Producer::stats() const { return impl_->GetStats(); }

}  // namespace tailcast::producer
