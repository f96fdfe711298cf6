#include "tailcast/consumer/consumer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cell/stream_watch.h"
#include "tailcast/cell/user_reporter.h"
#include "tailcast/cell/user_table.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/consumer/consumer_metrics.h"
#include "tailcast/consumer/given_times.h"
#include "tailcast/consumer/on_ports.h"
#include "tailcast/session/session.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::consumer {
namespace {

constexpr Duration kLookInterval = Duration::Millis(100);

Status NotRead(int32_t shard) {
  return InvalidArgumentError("this consumer does not read shard " + std::to_string(shard));
}

}  // namespace

class Consumer::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}
  ~Impl() {
    batch_.clear();
    next_look_ = MonotonicTime();
    if (metrics_ != nullptr) Show();
    reporter_.reset();
    shards_.clear();
    watch_.reset();
    session_.reset();
    // Tasks that were posted on the way down (files, readers) end here.
    if (loop_ != nullptr) loop_->RunOnce();
  }

  Status Open() {
    if (options_.cell.empty()) {
      return InvalidArgumentError("Options::cell is empty: give the scheduler's host:port");
    }
    if (!options_.report_as.empty()) {
      TAILCAST_RETURN_IF_ERROR(
          cell::ValidateUserName(options_.report_as).WithContext("Options::report_as"));
    }
    owned_loop_ = std::make_unique<ThreadLoop>();
    loop_ = owned_loop_.get();
    session::FabricPreference fabric = session::FabricPreference::kAuto;
    if (options_.fabric == FabricPreference::kShm) fabric = session::FabricPreference::kShm;
    if (options_.fabric == FabricPreference::kTcp) fabric = session::FabricPreference::kTcp;
    if (options_.fabric == FabricPreference::kVerbs) fabric = session::FabricPreference::kVerbs;
    session_ = std::make_unique<session::Session>(
        loop_, session::Options{.cell = options_.cell, .fabric = fabric, .writes_caches = false});
    std::optional<Status> started;
    const Scope scope;
    session_->Start(options_.open_timeout,
                    scope.Bind([&](Status status) { started = std::move(status); }));
    loop_->RunUntil([&] { return started.has_value(); }, MonotonicTime::Max());
    if (!started) return CancelledError("the loop was stopped");
    TAILCAST_RETURN_IF_ERROR(*started);
    TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig config,
                              session_->cell().FindStream(options_.stream));
    if (config.chunk_size() > 0) agent_options_.chunk_size = config.chunk_size();
    TAILCAST_RETURN_IF_ERROR(OpenShards(session_->ports(), stream::IdOf(config), config.shards()));
    const auto deleted = [this](const Status& why) {
      for (auto& [number, agent] : shards_) agent->OnDeleted(why);
    };
    watch_ = std::make_unique<cell::StreamWatch>(session_->cell(), stream::IdOf(config),
                                                 scope_.Bind(deleted));
    if (options_.report_as.empty()) return OkStatus();
    v1::User user;
    user.set_kind(v1::User::CONSUMER);
    user.set_stream(options_.stream);
    user.set_name(options_.report_as);
    reporter_ = std::make_unique<cell::UserReporter>(*loop_, session_->cell(), std::move(user),
                                                     [this](v1::User& self) { Describe(self); });
    return OkStatus();
  }

  // For whoever looks at the cell.
  void Describe(v1::User& user) const {
    // From bad to good.
    constexpr ShardState kOrder[] = {ShardState::kFailed,   ShardState::kStuck,
                                     ShardState::kLocating, ShardState::kWaiting,
                                     ShardState::kTailing,  ShardState::kQuiet};
    const auto* worst = std::end(kOrder) - 1;
    Counters counters = past_;
    int64_t behind_bytes = 0;
    Duration behind;
    const WallTime now = ReadWallClock();
    for (const auto& [number, agent] : shards_) {
      counters += agent->counters();
      if (agent->lag_bytes() > 0) {
        behind_bytes += agent->lag_bytes();
        behind = std::max(behind, given_.Age(number, now));
      }
      worst = std::min(worst, std::find(std::begin(kOrder), std::end(kOrder), agent->state()));
    }
    user.set_shards(static_cast<int32_t>(shards_.size()));
    user.set_messages(counters.messages);
    user.set_bytes(counters.bytes);
    user.set_behind_bytes(behind_bytes);
    user.set_behind_us(behind.micros());
    user.set_state(std::string(ShardStateName(*worst)));
  }

  Status OpenOn(const stream::CellPorts& ports, ThreadLoop* loop, const stream::StreamId& stream,
                int32_t shards) {
    loop_ = loop;
    return OpenShards(ports, stream, shards);
  }

  Status OpenShards(const stream::CellPorts& ports, const stream::StreamId& stream, int32_t count) {
    ports_ = ports;
    stream_ = stream;
    std::vector<int32_t> numbers = options_.shards;
    if (numbers.empty()) {
      for (int32_t i = 0; i < count; ++i) numbers.push_back(i);
    }
    const auto check = [&](int32_t number) {
      if (number >= 0 && number < count) return OkStatus();
      return InvalidArgumentError("stream '" + stream.name + "' has shards 0 to " +
                                  std::to_string(count - 1) + "; there is no shard " +
                                  std::to_string(number));
    };
    for (int32_t number : numbers) TAILCAST_RETURN_IF_ERROR(check(number));
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    std::map<int32_t, StartPoint> starts;
    for (int32_t number : numbers) starts[number] = options_.start;
    // A position names its shard: given as the start, it is that of one shard only.
    std::vector<stream::Position> resume = options_.resume;
    if (options_.start.kind == StartPoint::Kind::kPosition) {
      resume.push_back(options_.start.position);
      if (options_.shards.empty() && numbers.size() > 1) {
        for (auto& [number, start] : starts) start = StartPoint::Beginning();
      }
    }
    for (const stream::Position& position : resume) {
      TAILCAST_RETURN_IF_ERROR(check(position.shard));
      if (position.incarnation != stream.incarnation) return NotOf(stream, position);
      if (starts.contains(position.shard)) starts[position.shard] = StartPoint::At(position);
    }
    if (options_.profile == Profile::kLowLatency) {
      agent_options_.doorbell = true;
      agent_options_.thread_times = ReadThreadTimes;
      agent_options_.poll = std::min(agent_options_.poll, Duration::Millis(10));
    }
    agent_options_.rate_bytes_per_s = options_.rate_bytes_per_s;
    if (options_.show_metrics) {
      metrics_ = std::make_unique<ConsumerMetrics>(ProcessMetrics(), stream.name, ReadWallClock());
    }
    numbers_ = numbers;
    for (int32_t number : numbers) StartShard(number, starts[number]);
    return OkStatus();
  }

  Status NotOf(const stream::StreamId& stream, const stream::Position& position) const {
    const std::string what =
        "position " + position.ToString() + " is not one of stream '" + stream.name + "'";
    if (session_ != nullptr) {
      for (const v1::StreamConfig& other : session_->cell().view().streams()) {
        if (stream::IdOf(other).incarnation == position.incarnation) {
          return InvalidArgumentError(what + ", but of stream '" + other.name() + "'");
        }
      }
    }
    return InvalidArgumentError(what +
                                " as it is now: it is of a stream that is not in this cell, "
                                "or '" +
                                stream.name +
                                "' was deleted and created again since; start from 'beginning'");
  }

  // What the cell's scheduler found to be missing behind the file that is read.
  Status Lacking(int32_t shard, int64_t seq) const {
    if (session_ == nullptr) return OkStatus();
    for (const v1::LackingFile& file : session_->cell().view().lacking()) {
      if (stream::StreamIncarnation{file.incarnation()} == stream_.incarnation &&
          file.shard() == shard && file.seq() > seq) {
        return UnavailableError("this cell lacks file " + std::to_string(file.seq()));
      }
    }
    return OkStatus();
  }

  void StartShard(int32_t number, const StartPoint& start) {
    // Who polls looks himself.
    auto agent = std::make_unique<ConsumerAgent>(ports_, stream::ShardId{stream_, number},
                                                 agent_options_, Callback<void()>());
    agent->Start(start);
    auto& slot = shards_[number];
    if (slot) {
      past_ += slot->counters();
      given_.Forget(number);
    }
    slot = std::move(agent);
  }

  Result<std::span<const Message>> Poll(Duration timeout) {
    batch_.clear();
    const MonotonicTime deadline = ReadMonotonicClock() + timeout;
    // What is done with may be read over; what is in the cache already comes at once.
    for (auto& [number, agent] : shards_) agent->Release();
    // Lengths, notifications and answers that came in between the polls.
    loop_->RunOnce();
    for (;;) {
      Status error;
      Gather(&error);
      if (metrics_ != nullptr) Show();
      if (!batch_.empty()) return std::span<const Message>(batch_);
      if (!error.ok()) return error;
      if (!loop_->RunUntil([this] { return AnyReady(); }, deadline)) {
        return std::span<const Message>();
      }
    }
  }

  // To Prometheus. How all shards are is looked at now and then: there may be thousands.
  void Show() {
    if (!batch_.empty()) metrics_->OnGiven(ReadWallClock(), batch_);
    const MonotonicTime now = ReadMonotonicClock();
    if (now < next_look_) return;
    next_look_ = now + kLookInterval;
    Counters counters = past_;
    ConsumerMetrics::States states{};
    int64_t lag_bytes = 0;
    for (const auto& [number, agent] : shards_) {
      counters += agent->counters();
      ++states[static_cast<size_t>(agent->state())];
      lag_bytes += agent->lag_bytes();
    }
    metrics_->OnLook(counters, states, lag_bytes);
  }

  bool AnyReady() const {
    for (const auto& [number, agent] : shards_) {
      if (agent->ready()) return true;
    }
    return false;
  }

  void Gather(Status* error) {
    // The shard after the one that was served first last time goes first.
    auto it = shards_.upper_bound(last_first_);
    if (it == shards_.end()) it = shards_.begin();
    if (it != shards_.end()) last_first_ = it->first;
    int64_t left = options_.batch_bytes_max;
    for (size_t i = 0; i < shards_.size() && left > 0; ++i) {
      ConsumerAgent& agent = *it->second;
      const size_t before = batch_.size();
      if (agent.Take(batch_, left) > 0) given_.OnGiven(it->first, batch_.back().time_us);
      for (size_t m = before; m < batch_.size(); ++m) {
        left -= batch_[m].end_byte() - batch_[m].byte + 1;
      }
      if (agent.state() == ShardState::kFailed && error->ok()) *error = agent.status();
      if (++it == shards_.end()) it = shards_.begin();
    }
  }

  Options options_;
  AgentOptions agent_options_;
  std::unique_ptr<ThreadLoop> owned_loop_;
  ThreadLoop* loop_ = nullptr;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<cell::StreamWatch> watch_;
  std::unique_ptr<cell::UserReporter> reporter_;  // null: nobody is told
  stream::CellPorts ports_;
  stream::StreamId stream_;
  std::vector<int32_t> numbers_;
  std::map<int32_t, std::unique_ptr<ConsumerAgent>> shards_;
  int32_t last_first_ = -1;
  std::unique_ptr<ConsumerMetrics> metrics_;  // once the shards are open
  MonotonicTime next_look_;
  GivenTimes given_;
  Counters past_;  // of agents that Seek replaced
  std::vector<Message> batch_;
  Scope scope_;
};

Consumer::Consumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Consumer::~Consumer() = default;

Result<std::unique_ptr<Consumer>> Consumer::Open(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<Consumer>(new Consumer(std::move(impl)));
}

Result<std::unique_ptr<Consumer>> OnPorts::Open(const stream::CellPorts& ports, ThreadLoop* loop,
                                                const stream::StreamId& stream, int32_t shards,
                                                const Options& options) {
  auto impl = std::make_unique<Consumer::Impl>(options);
  TAILCAST_RETURN_IF_ERROR(impl->OpenOn(ports, loop, stream, shards));
  return std::unique_ptr<Consumer>(new Consumer(std::move(impl)));
}

Result<std::span<const Message>> Consumer::Poll(Duration timeout) { return impl_->Poll(timeout); }

Status Consumer::Run(UniqueFunction<bool(std::span<const Message>)> on_batch, Duration idle) {
  for (;;) {
    TAILCAST_ASSIGN_OR_RETURN(const std::span<const Message> batch, impl_->Poll(idle));
    if (!on_batch(batch)) return OkStatus();
  }
}

std::optional<stream::Position> Consumer::position(int32_t shard) const {
  const auto it = impl_->shards_.find(shard);
  return it == impl_->shards_.end() ? std::nullopt : it->second->position();
}

Status Consumer::Seek(int32_t shard, const StartPoint& start) {
  if (!impl_->shards_.contains(shard)) return NotRead(shard);
  impl_->batch_.clear();
  impl_->StartShard(shard, start);
  return OkStatus();
}

const std::vector<int32_t>& Consumer::shards() const { return impl_->numbers_; }

const stream::StreamId& Consumer::stream() const { return impl_->stream_; }

stream::Position Consumer::PositionOf(const Message& message) const {
  return {.incarnation = impl_->stream_.incarnation,
          .shard = message.shard,
          .number = message.number,
          .byte = message.byte};
}

stream::Position Consumer::PositionBehind(const Message& message) const {
  stream::Position position = PositionOf(message);
  position.number += 1;
  position.byte = message.end_byte();
  return position;
}

ShardStatus Consumer::shard_status(int32_t shard) const {
  const auto it = impl_->shards_.find(shard);
  if (it == impl_->shards_.end()) {
    return {.state = ShardState::kFailed, .error = NotRead(shard)};
  }
  const ConsumerAgent& agent = *it->second;
  Status missing = agent.missing();
  if (missing.ok()) missing = impl_->Lacking(shard, agent.file_seq());
  return {.state = agent.state(),
          .error = agent.status(),
          .first_available = agent.first_available(),
          .lag_bytes = agent.lag_bytes(),
          .next_is_known = agent.next_is_known(),
          .ready = agent.ready(),
          .trouble = agent.trouble(),
          .missing = std::move(missing),
          .end_is_known = agent.end_is_known(),
          .begins_beyond = agent.begins_beyond(),
          .as_of = agent.as_of()};
}

Status Consumer::contact() const {
  return impl_->session_ ? impl_->session_->cell().contact() : OkStatus();
}

int64_t Consumer::remote_bytes_read() const {
  const stream::CellPorts& ports = impl_->ports_;
  return static_cast<int64_t>(ports.data_cache->counters().bytes_read +
                              ports.metadata_cache->counters().bytes_read);
}

Counters Consumer::counters() const {
  Counters sum = impl_->past_;
  for (const auto& [number, agent] : impl_->shards_) sum += agent->counters();
  return sum;
}

}  // namespace tailcast::consumer
