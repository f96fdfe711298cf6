#include "tailcast/producer/producer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/session_priority.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/cell/stream_watch.h"
#include "tailcast/cell/user_reporter.h"
#include "tailcast/producer/bulk_core.h"
#include "tailcast/producer/file_limits.h"
#include "tailcast/producer/intake.h"
#include "tailcast/producer/notify.h"
#include "tailcast/producer/on_ports.h"
#include "tailcast/producer/options.h"
#include "tailcast/producer/producer_agent.h"
#include "tailcast/producer/producer_metrics.h"
#include "tailcast/session/session.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_of_key.h"

namespace tailcast::producer {
namespace {

// What Close waits for the caches, at most.
constexpr Duration kShadowWaitMax = Duration::Seconds(2);
// What it grants the shards to close beyond the caller's time.
constexpr Duration kCloseGrace = Duration::Seconds(3);
// What it waits for the scheduler to hear of the end.
constexpr Duration kGoodByeWaitMax = Duration::Millis(200);
// What a second Close waits for the first, at most: a number of nanoseconds still.
constexpr Duration kCloseWaitMax = Duration::Seconds(int64_t{24} * 3600);
// How often it is looked whether to hurry, and how long the loop may take to answer then.
constexpr Duration kHurryStep = Duration::Millis(50);
constexpr Duration kHurryGrace = Duration::Millis(500);
using Hurry = std::function<bool()>;

// The outcomes of several shards, which come on the loop while a caller's thread waits for them.
class Outcomes {
 public:
  explicit Outcomes(size_t expected) : left_(expected) {}

  void Add(Status status) {
    const std::lock_guard lock(mutex_);
    --left_;
    if (error_.ok()) error_ = std::move(status);
    changed_.notify_all();
  }
  // Until all have come, or if `all` is false an error. Returns the first error; nullopt: the
  // deadline came before that.
  std::optional<Status> Wait(MonotonicTime deadline, bool all) {
    std::unique_lock lock(mutex_);
    while (left_ > 0 && (all || error_.ok())) {
      const Duration left = deadline - ReadMonotonicClock();
      if (left <= Duration()) return std::nullopt;
      const Duration part = std::min(left, kTimeMax);  // clocks count nanoseconds
      changed_.wait_for(lock, std::chrono::microseconds(part.micros()));
    }
    return error_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_;
  Status error_;
};

}  // namespace

// The intake between the callers' threads and the loop, and an agent for each shard on the loop.
//
// The loop lives as long as this, not only until Close: a call of another thread that Close
// overtakes, between what the intake took from it and its post, finds the loop and is dropped there
// (the scope has ended) or, if its caller waits for it, is run and finds no agents.
class Producer::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        intake_(
            {options_.buffer_bytes_max, options_.message_bytes_max, options_.buffer_messages_max},
            &CommitTime(ProcessMetrics(), options_.stream)),
        shown_(ShowIntake(ProcessMetrics(), options_.stream, intake_)) {}
  ~Impl() {
    (void)Close(Duration(), nullptr);
    thread_.reset();
  }

  Status Open() {
    const auto deadline = ReadMonotonicClock() + options_.open_timeout;
    if (options_.cell.empty()) {
      return InvalidArgumentError("Options::cell is empty: give the scheduler's host:port");
    }
    thread_ = std::make_unique<LoopThread>("producer");
    loop_ = thread_->loop();
    TAILCAST_RETURN_IF_ERROR(StartSession());
    v1::StreamConfig config;
    TAILCAST_RETURN_IF_ERROR(FindStream(config));
    OnLoop([&] {
      session_->cell().SetOnChange(scope_.Bind([this](const v1::CellView&) { LimitBytes(); }));
    });
    TAILCAST_RETURN_IF_ERROR(OpenShards(session_->ports(), stream::IdOf(config), config.shards(),
                                        {config.chunk_size(), config.chunk_size_by_rate()},
                                        deadline));
    OnLoop([&] {
      const auto deleted = [this](const Status& why) {
        for (auto& [number, agent] : agents_) agent->OnDeleted(why);
        if (reporter_ != nullptr) reporter_->SayGoodBye(scope_.Bind([] {}));
      };
      watch_ = std::make_unique<cell::StreamWatch>(session_->cell(), stream::IdOf(config),
                                                   scope_.Bind(deleted));
      v1::User user;
      user.set_kind(v1::User::PRODUCER);
      user.set_stream(options_.stream);
      reporter_ = std::make_unique<cell::UserReporter>(*loop_, session_->cell(), std::move(user),
                                                       [this](v1::User& self) { Describe(self); });
    });
    return OkStatus();
  }

  Status OpenOn(const stream::CellPorts& ports, const stream::StreamId& stream, int32_t shards,
                int64_t chunk_size) {
    loop_ = ports.loop;
    return OpenShards(ports, stream, shards, {chunk_size, false},
                      ReadMonotonicClock() + options_.open_timeout);
  }

  Status AddMessage(Headers headers, std::string_view payload, AckCallback ack, int32_t shard,
                    Duration wait) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string encoded, stream::Headers::Encode(headers));
    return Add(Intake::Kind::kMessage, encoded, payload, std::move(ack), shard, wait);
  }

  Status Add(Intake::Kind kind, std::string_view headers, std::string_view payload, AckCallback ack,
             int32_t shard, Duration wait) {
    TAILCAST_ASSIGN_OR_RETURN(const bool tell,
                              intake_.Add(shard, kind, headers, payload, std::move(ack), wait));
    if (tell) loop_->Post(scope_.Bind([this, shard] { Feed(shard); }));
    return OkStatus();
  }

  Ack Await(std::future<Ack>& outcome, int32_t shard) const {
    const Duration wait = publish_timeout();
    if (outcome.wait_for(std::chrono::microseconds(wait.micros())) == std::future_status::ready)
      return outcome.get();
    const Status trouble = intake_.trouble(shard);
    return Ack{AckOutcome::kUnknown,
               {},
               ResourceExhaustedError("shard " + std::to_string(shard) +
                                      ": not acknowledged within " + std::to_string(wait.millis()) +
                                      " ms" + (trouble.ok() ? "" : ": " + trouble.message()))};
  }
  Duration publish_timeout() const { return options_.publish_timeout; }

  Status Flush(Duration timeout) {
    if (intake_.closed()) return FailedPreconditionError("the producer is closed");
    return FlushShards(timeout, nullptr);
  }

  Status Close(Duration timeout, const Hurry& hurry) {
    if (!intake_.Close()) return WaitUntilClosed(timeout);
    Status status;
    if (loop_ != nullptr) {
      if (timeout > Duration()) status = FlushShards(timeout, hurry);
      if (timeout > Duration() && status.ok()) status = CloseShards(timeout, hurry);
      SayGoodBye();
      // A turn of its own each: nothing is destroyed inside its own callback.
      OnLoop([&] { EndShards(); });
      OnLoop([&] { session_.reset(); });
    }
    const std::lock_guard lock(close_mutex_);
    close_status_ = status;
    closed_.notify_all();
    return status;
  }

  // Another call closes, or has.
  Status WaitUntilClosed(Duration timeout) {
    std::unique_lock lock(close_mutex_);
    // A callback must not wait for the one that waits for the loop.
    if (std::this_thread::get_id() != loop_thread_) {
      const Duration wait = std::min(timeout, kCloseWaitMax);
      closed_.wait_for(lock, std::chrono::microseconds(wait.micros()),
                       [this] { return close_status_.has_value(); });
    }
    if (close_status_) return *close_status_;
    return DeadlineExceededError(
        "another call is closing the producer, and has not come to its end");
  }

  Status FirstStopped() const {
    for (int32_t number : numbers_) {
      if (auto stopped = intake_.stopped(number)) return *stopped;
    }
    return OkStatus();
  }

  Stats GetStats() {
    const Intake::Totals totals = intake_.totals();
    Stats stats;
    stats.messages = totals.messages;
    stats.bytes = totals.bytes;
    stats.durable = totals.durable;
    stats.failed = totals.failed;
    stats.unknown = totals.unknown;
    stats.buffered_bytes = totals.buffered_bytes;
    OnLoop([&] {
      for (auto& [number, agent] : agents_) {
        if (agent == nullptr) continue;  // closed
        const AgentCounters counters = agent->counters();
        const ShadowCounters& shadow = agent->shadow_counters();
        stats.flushes += counters.flushes;
        stats.files_opened += counters.files_opened;
        stats.recoveries += counters.recoveries;
        stats.shadow_jumps += shadow.jumps;
        stats.shadow_bytes += shadow.chunk_bytes;
        stats.shadow_failures += shadow.bulk_failures + shadow.publish_failures;
      }
    });
    return stats;
  }

  Result<stream::Position> DurablePosition(int32_t shard) {
    if (std::find(numbers_.begin(), numbers_.end(), shard) == numbers_.end()) {
      return InvalidArgumentError("shard " + std::to_string(shard) +
                                  " is not one of this producer");
    }
    std::optional<stream::Position> position;
    OnLoop([&] {
      const auto& agent = agents_.at(shard);
      if (agent != nullptr) position = agent->durable_position();
    });
    if (!position) return FailedPreconditionError("the producer is closed");
    return *position;
  }

  const std::vector<int32_t>& numbers() const { return numbers_; }
  int32_t shard_count() const { return shard_count_; }

 private:
  Status StartSession() {
    std::promise<Status> promise;
    std::future<Status> started = promise.get_future();
    OnLoop([&] {
      session_ =
          std::make_unique<session::Session>(thread_->loop(), session::Options{options_.cell});
      // So the threads of gRPC don't, which may serve others in this process, too; the store's do,
      // which begin from now on.
      if (options_.profile == Profile::kLowLatency) runs_before_others_ = RunBeforeOthers();
      session_->Start(options_.open_timeout,
                      scope_.Bind([promise = std::move(promise)](Status status) mutable {
                        promise.set_value(std::move(status));
                      }));
    });
    return started.get();
  }

  Status FindStream(v1::StreamConfig& config) {
    Status status;
    OnLoop([&] {
      auto found = session_->cell().FindStream(options_.stream);
      status = found.status();
      if (found.ok()) config = *found;
      LimitBytes();
      const std::string& here = session_->cell().view().cell();
      if (status.ok() && config.source() != here) {
        status = FailedPreconditionError("stream '" + options_.stream + "' is produced in cell " +
                                         config.source() + ", not in " + here +
                                         ": open the producer there");
      }
    });
    return status;
  }

  // For whoever looks at the cell.
  void Describe(v1::User& user) const {
    const Intake::Totals totals = intake_.totals();
    user.set_shards(static_cast<int32_t>(numbers_.size()));
    user.set_messages(totals.durable);
    user.set_bytes(totals.durable_bytes);
    user.set_behind_bytes(totals.buffered_bytes);
    user.set_state(totals.stopped_shards > 0 ? "stopped"
                   : !troubled_.empty()      ? "failing"
                   : totals.full_since       ? "waiting"
                                             : "producing");
    if (totals.full_since) user.set_behind_us((ReadMonotonicClock() - *totals.full_since).micros());
  }

  // What the stream may keep may change while it runs.
  void LimitBytes() {
    const auto config = session_->cell().FindStream(options_.stream);
    if (!config.ok()) return;
    limits_ = LimitsOf(config->retention(), options_.roll_bytes);
    for (auto& [number, agent] : agents_) Limit(*agent);
  }

  void Limit(ProducerAgent& agent) const {
    agent.SetBytesMax(limits_.shard_bytes_max);
    if (limits_.roll_bytes > 0) agent.SetRollBytes(limits_.roll_bytes);
  }

  Status OpenShards(const stream::CellPorts& ports, const stream::StreamId& stream, int32_t count,
                    ChunkSize chunks, MonotonicTime deadline) {
    OnLoop([this] { loop_thread_ = std::this_thread::get_id(); });
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
      if (std::find(numbers_.begin(), numbers_.end(), number) != numbers_.end()) continue;
      numbers_.push_back(number);
      intake_.AddShard(number);
    }
    AgentOptions agent_options = ToAgentOptions(options_, chunks);
    agent_options.runs_before_others = runs_before_others_;
    auto opening = std::make_shared<Outcomes>(numbers_.size());
    OnLoop([&] {
      for (int32_t number : numbers_) {
        auto& agent = agents_[number];
        agent = std::make_unique<ProducerAgent>(ports, stream::ShardId{stream, number},
                                                agent_options, MakeHooks(number), RandomSeed());
        Limit(*agent);
        agent->Open(scope_.Bind([opening](Status status) { opening->Add(std::move(status)); }));
      }
    });
    const std::optional<Status> opened = opening->Wait(deadline, false);
    if (opened) return *opened;
    return WithTrouble(
        DeadlineExceededError("opening the shards of '" + stream.name + "' took longer than " +
                              std::to_string(options_.open_timeout.millis()) + " ms"));
  }

  // A deadline passed while a primary layer failed: what that says.
  Status WithTrouble(Status status) {
    if (status.code() != StatusCode::kDeadlineExceeded) return status;
    Status trouble;
    OnLoop([&] {
      for (const auto& [number, agent] : agents_) {
        if (trouble.ok() && agent != nullptr) trouble = agent->trouble();
      }
    });
    if (trouble.ok()) return status;
    return DeadlineExceededError(status.message() + ": " + trouble.message());
  }

  ProducerAgent::Hooks MakeHooks(int32_t number) {
    ProducerAgent::Hooks hooks;
    hooks.on_progress = scope_.Bind([this, number] { Feed(number); });
    hooks.on_trouble = scope_.Bind([this, number](const Status& why, bool same) {
      intake_.SetTrouble(number, why);
      troubled_.insert(number);
      if (!same && options_.on_trouble) options_.on_trouble(why);
    });
    if (session_) {
      hooks.notify = scope_.Bind([this](const FileEvent& event, Callback<void(Status)> done) {
        NotifyScheduler(session_->cell(), scope_, event, std::move(done));
      });
    }
    return hooks;
  }

  // On the loop: hands what came in to the agent and wakes who waits.
  void Feed(int32_t number) {
    ProducerAgent& agent = *agents_.at(number);
    if (agent.state() == ProducerAgent::State::kStopped) intake_.Stop(number, agent.status());
    if (agent.trouble().ok() && troubled_.erase(number) > 0) intake_.SetTrouble(number, OkStatus());
    Batch batch = intake_.Take(number);
    if (runs_before_others_) CountForBulk(static_cast<int64_t>(batch.bytes.size()));
    if (const auto stopped = intake_.stopped(number)) {
      Fail(batch, *stopped);
    } else if (!batch.messages.empty()) {
      const Status status = agent.Publish(std::move(batch));
      TAILCAST_CHECK(status.ok(), status.ToString());
    }
    intake_.TellFrom(number, agent.bytes_before_progress());
    intake_.Wake();
  }

  // All consumers take each byte. Who writes as many as it can, before all of them, takes the time
  // from them in which they would, and they fall out of the caches.
  void CountForBulk(int64_t bytes) {
    if (!bulk_.Add(bytes, ReadMonotonicClock())) return;
    if (!bulk_.in_bulk()) {
      less_.reset();
    } else if (!less_) {
      less_.emplace();
    }
    SettleOwnSession();
  }

  static void Fail(Batch& batch, const Status& status) {
    Ack ack;
    ack.outcome = AckOutcome::kFailed;
    ack.error = status;
    for (auto& [index, callback] : batch.acks) callback(ack);
  }

  Status FlushShards(Duration timeout, const Hurry& hurry) {
    loop_->Post(scope_.Bind([this] {
      for (auto& [number, agent] : agents_) {
        Feed(number);
        agent->FlushSoon();
      }
    }));
    std::optional<Status> flushed;
    WaitInSteps(ReadMonotonicClock() + timeout, hurry, [&](MonotonicTime until) {
      flushed = intake_.WaitUntilAcknowledged(until - ReadMonotonicClock());
      return flushed->code() != StatusCode::kDeadlineExceeded;
    });
    return WithTrouble(*flushed);
  }

  Status CloseShards(Duration timeout, const Hurry& hurry) {
    const auto close = [&](Duration shadow_wait) {
      auto closing = std::make_shared<Outcomes>(agents_.size());
      OnLoop([&] {
        for (auto& [number, agent] : agents_) {
          agent->Close(shadow_wait,
                       scope_.Bind([closing](Status status) { closing->Add(std::move(status)); }));
        }
      });
      return closing;
    };
    std::optional<Status> closed;
    const auto closing = close(std::min(timeout, kShadowWaitMax));
    WaitInSteps(ReadMonotonicClock() + timeout + kCloseGrace, hurry, [&](MonotonicTime until) {
      closed = closing->Wait(until, true);
      return closed.has_value();
    });
    // Those that only wait for the caches end at once.
    if (!closed) closed = close(Duration())->Wait(ReadMonotonicClock() + kHurryGrace, true);
    if (closed) return *closed;
    return WithTrouble(DeadlineExceededError(
        "the files were not sealed in time, which the next producer makes up for"));
  }

  // Until `wait`, which waits until the time that it is given, says true, or the time is up.
  template <typename Wait>
  static void WaitInSteps(MonotonicTime deadline, const Hurry& hurry, const Wait& wait) {
    for (;;) {
      const MonotonicTime step = ReadMonotonicClock() + kHurryStep;
      if (wait(hurry ? std::min(deadline, step) : deadline)) return;
      if (ReadMonotonicClock() >= deadline || (hurry && hurry())) return;
    }
  }

  // So that nobody takes it for one that has trouble.
  void SayGoodBye() {
    const auto said = std::make_shared<std::promise<void>>();
    OnLoop([&] {
      if (reporter_ == nullptr) return said->set_value();
      reporter_->SayGoodBye(scope_.Bind([said] { said->set_value(); }));
    });
    said->get_future().wait_for(std::chrono::microseconds(kGoodByeWaitMax.micros()));
  }

  // On the loop.
  void EndShards() {
    scope_.End();
    watch_.reset();
    reporter_.reset();
    for (auto& [number, agent] : agents_) {
      agent.reset();
      Batch batch = intake_.Take(number);
      Fail(batch, FailedPreconditionError("the producer is closed"));
    }
    intake_.Wake();
    less_.reset();
  }

  // Runs `task` on the loop and waits for it.
  void OnLoop(UniqueFunction<void()> task) {
    if (thread_) {
      thread_->Call(std::move(task));
      return;
    }
    std::promise<void> promise;
    std::future<void> ran = promise.get_future();
    const Scope scope;  // lives until the task has run
    loop_->Post(scope.Bind([&task, promise = std::move(promise)]() mutable {
      task();
      promise.set_value();
    }));
    ran.wait();
  }

  const Options options_;
  Intake intake_;
  const MetricSource shown_;
  int32_t shard_count_ = 1;
  std::vector<int32_t> numbers_;        // fixed once open
  std::unique_ptr<LoopThread> thread_;  // fixed once open; null over a caller's ports
  bool runs_before_others_ = false;     // the same
  EventLoop* loop_ = nullptr;
  std::unique_ptr<session::Session> session_;                 // loop only
  BulkCore bulk_;                                             // loop only
  std::optional<LessForOwnSession> less_;                     // loop only; in bulk
  std::set<int32_t> troubled_;                                // loop only
  FileLimits limits_;                                         // loop only; 0: none, as the options
  std::unique_ptr<cell::StreamWatch> watch_;                  // loop only
  std::unique_ptr<cell::UserReporter> reporter_;              // loop only
  std::map<int32_t, std::unique_ptr<ProducerAgent>> agents_;  // loop only; the keys are fixed
  std::mutex close_mutex_;
  std::condition_variable closed_;
  std::optional<Status> close_status_;  // once it is closed
  std::thread::id loop_thread_;
  Scope scope_;  // ends on the loop
};

Producer::Producer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Producer::~Producer() = default;

Result<std::unique_ptr<Producer>> Producer::Open(const Options& options) {
  TAILCAST_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Producer>(new Producer(std::move(impl)));
}

Result<std::unique_ptr<Producer>> OnPorts::Open(const stream::CellPorts& ports,
                                                const stream::StreamId& stream, int32_t shards,
                                                int64_t chunk_size, const Options& options) {
  TAILCAST_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Producer::Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->OpenOn(ports, stream, shards, chunk_size));
  return std::unique_ptr<Producer>(new Producer(std::move(impl)));
}

Ack Producer::Publish(std::string_view payload, int32_t shard, Headers headers) {
  std::promise<Ack> promise;
  std::future<Ack> outcome = promise.get_future();
  const Status status = Publish(
      payload, [promise = std::move(promise)](const Ack& ack) mutable { promise.set_value(ack); },
      shard, headers);
  if (!status.ok()) return Ack{AckOutcome::kFailed, {}, status};
  return impl_->Await(outcome, shard);
}

Status Producer::Publish(std::string_view payload, AckCallback ack, int32_t shard,
                         Headers headers) {
  return impl_->AddMessage(headers, payload, std::move(ack), shard, impl_->publish_timeout());
}

Ack Producer::Publish(std::string_view key, std::string_view payload) {
  return Publish(payload, ShardOf(key));
}

Status Producer::Publish(std::string_view key, std::string_view payload, AckCallback ack,
                         Headers headers) {
  return Publish(payload, std::move(ack), ShardOf(key), headers);
}

Status Producer::TryPublish(std::string_view payload, AckCallback ack, int32_t shard,
                            Headers headers) {
  return impl_->AddMessage(headers, payload, std::move(ack), shard, Duration());
}

Status Producer::Append(std::string_view bytes, AckCallback ack, int32_t shard) {
  return impl_->Add(Intake::Kind::kRaw, {}, bytes, std::move(ack), shard, impl_->publish_timeout());
}

int32_t Producer::ShardOf(std::string_view key) const {
  return stream::ShardOfKey(key, impl_->shard_count());
}

Result<stream::Position> Producer::durable_position(int32_t shard) const {
  return impl_->DurablePosition(shard);
}
Status Producer::Flush(Duration timeout) { return impl_->Flush(timeout); }
Status Producer::Close(Duration timeout) { return Close(timeout, nullptr); }
Status Producer::Close(Duration timeout, const std::function<bool()>& hurry) {
  return impl_->Close(timeout, hurry);
}
const std::vector<int32_t>& Producer::shards() const { return impl_->numbers(); }
Status Producer::status() const { return impl_->FirstStopped(); }
Stats Producer::stats() const { return impl_->GetStats(); }

}  // namespace tailcast::producer
