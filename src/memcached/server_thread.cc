#include "tailcast/memcached/server_thread.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "tailcast/memcached/merge_core.h"
#include "tailcast/memcached/types.h"

namespace tailcast::memcached {
namespace {

uint32_t ExpirySeconds(Duration time_to_live) {
  const Duration bounded = std::clamp(time_to_live, Duration::Seconds(1), kTimeToLiveMax);
  return static_cast<uint32_t>((bounded.micros() + 999'999) / 1'000'000);
}

}  // namespace

ServerThread::ServerThread(EventLoop& loop, ServerAddress address, ItemFormat format,
                           Options options)
    : loop_(loop),
      format_(std::move(format)),
      options_(options),
      connection_(std::move(address), options.server_timeout),
      expiry_s_(ExpirySeconds(options.time_to_live)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "memcached");
}

ServerThread::~ServerThread() {
  Stop();
  thread_.join();
}

void ServerThread::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void ServerThread::Read(std::vector<cache::Key> keys, MonotonicTime deadline,
                        Callback<void(ReadAnswer)> done) {
  Put(ReadRequest{std::move(keys), deadline, std::move(done)});
}

void ServerThread::Write(std::shared_ptr<const std::vector<cache::Mutation>> mutations,
                         std::vector<uint32_t> which, MonotonicTime deadline,
                         Callback<void(WriteAnswer)> done) {
  Put(WriteRequest{std::move(mutations), std::move(which), deadline, std::move(done)});
}

void ServerThread::Put(Request request) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(request));
  }
  wake_.notify_one();
}

void ServerThread::Run() {
  for (;;) {
    Request request;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      request = std::move(queue_.front());
      queue_.pop_front();
    }
    const bool answered =
        std::visit([this](auto& each) { return Carry(std::move(each)); }, request);
    if (answered) continue;
    std::deque<Request> behind;
    {
      std::lock_guard lock(mutex_);
      behind.swap(queue_);
    }
    for (Request& each : behind) Skip(std::move(each));
  }
}

bool ServerThread::stopping() {
  std::lock_guard lock(mutex_);
  return stopping_;
}

bool ServerThread::MayGoOn(MonotonicTime deadline) {
  const Duration left = deadline - ReadMonotonicClock();
  if (left <= Duration() || stopping()) return false;
  connection_.SetTimeout(std::min(left, options_.server_timeout));
  return true;
}

void ServerThread::Skip(Request request) {
  if (auto* read = std::get_if<ReadRequest>(&request)) {
    ReadAnswer answer;
    answer.outcome = RequestOutcome::kAfterFailure;
    loop_.Post(std::move(read->done).With(std::move(answer)));
    return;
  }
  auto& write = std::get<WriteRequest>(request);
  WriteAnswer answer;
  answer.outcome = RequestOutcome::kAfterFailure;
  answer.results.resize(write.which.size());
  loop_.Post(std::move(write.done).With(std::move(answer)));
}

RequestOutcome ServerThread::Failure() const {
  switch (connection_.last_failure()) {
    case Connection::Failure::kUnreachable:
      return RequestOutcome::kUnreachable;
    case Connection::Failure::kBroken:
      return RequestOutcome::kBroken;
    case Connection::Failure::kTimeout:
      return RequestOutcome::kTimeout;
    case Connection::Failure::kRefused:
      break;
  }
  return RequestOutcome::kRefused;
}

bool ServerThread::Carry(ReadRequest request) {
  ReadAnswer answer;
  const uint64_t reconnections = connection_.reconnections();
  answer.outcome = RequestOutcome::kLate;
  if (MayGoOn(request.deadline)) {
    std::vector<std::string> names;
    names.reserve(request.keys.size());
    for (const cache::Key& key : request.keys) names.push_back(format_.KeyOf(key));
    std::vector<Connection::Item> items;
    answer.outcome = connection_.Get(names, items) ? RequestOutcome::kAnswered : Failure();
    if (answer.outcome == RequestOutcome::kAnswered) {
      using State = ReadAnswer::Value::State;
      answer.values.resize(items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        if (!items[i].bytes.has_value()) continue;
        const auto value = format_.Decode(request.keys[i], *items[i].bytes);
        answer.values[i].state = value.has_value() ? State::kFound : State::kDamaged;
        if (!value.has_value()) continue;
        answer.values[i].rule = value->rule;
        answer.values[i].bytes = std::move(*items[i].bytes);
        answer.values[i].bytes.erase(0, kItemHeaderBytes);
      }
    }
  }
  answer.reconnections = connection_.reconnections() - reconnections;
  const bool failed = IsFailure(answer.outcome);
  loop_.Post(std::move(request.done).With(std::move(answer)));
  return !failed;
}

bool ServerThread::Carry(WriteRequest request) {
  WriteAnswer answer;
  answer.results.resize(request.which.size());
  const uint64_t reconnections = connection_.reconnections();
  answer.outcome = Merge(request, answer);
  answer.reconnections = connection_.reconnections() - reconnections;
  const bool failed = IsFailure(answer.outcome);
  loop_.Post(std::move(request.done).With(std::move(answer)));
  return !failed;
}

RequestOutcome ServerThread::Merge(const WriteRequest& request, WriteAnswer& answer) {
  if (!MayGoOn(request.deadline)) return RequestOutcome::kLate;
  std::vector<MergeCore> cores;
  cores.reserve(request.which.size());
  std::vector<std::string> names;   // of all
  std::vector<std::string> to_get;  // of those that begin with a get
  for (const uint32_t index : request.which) {
    const cache::Mutation& mutation = (*request.mutations)[index];
    cores.emplace_back(format_, mutation, options_.cas_rounds_max);
    names.push_back(format_.KeyOf(mutation.key));
    if (cores.back().step() == MergeCore::Step::kGet) to_get.push_back(names.back());
  }
  // The first get of all keys in one go; a swap that loses asks for its key alone.
  std::vector<Connection::Item> items;
  if (!connection_.Get(to_get, items)) return Failure();
  const auto see = [](MergeCore& core, const Connection::Item& item) {
    core.OnItem(
        item.bytes.has_value() ? std::optional<std::string_view>(*item.bytes) : std::nullopt,
        item.version);
  };
  size_t next_item = 0;
  for (size_t i = 0; i < cores.size(); ++i) {
    MergeCore& core = cores[i];
    if (core.step() == MergeCore::Step::kGet) see(core, items[next_item++]);
    while (core.step() != MergeCore::Step::kDone) {
      if (!MayGoOn(request.deadline)) {
        answer.late_mutations = cores.size() - i;
        return RequestOutcome::kAnswered;
      }
      std::optional<StoreResult> stored;
      switch (core.step()) {
        case MergeCore::Step::kGet: {
          std::vector<Connection::Item> item;
          if (!connection_.Get(std::span(&names[i], 1), item)) return Failure();
          see(core, item.front());
          continue;
        }
        case MergeCore::Step::kAdd:
          stored = connection_.Add(names[i], core.item(), expiry_s_);
          break;
        case MergeCore::Step::kSwap:
          stored = connection_.Swap(names[i], core.item(), expiry_s_, core.version());
          break;
        case MergeCore::Step::kDelete:
          stored = connection_.Delete(names[i]);
          break;
        case MergeCore::Step::kDone:
          break;
      }
      if (!stored.has_value()) return Failure();
      core.OnStored(*stored);
    }
    answer.results[i] = core.result();
    answer.cas_retries += core.retries();
    answer.cas_given_up += core.result().has_value() ? 0 : 1;
    answer.damaged_items += core.damaged_items();
  }
  return RequestOutcome::kAnswered;
}

}  // namespace tailcast::memcached
