#include "tailcast/memcached/server_set.h"

#include <algorithm>
#include <random>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"

namespace tailcast::memcached {
namespace {

const Logger kLog("memcached");
// One that failed last so long ago answers again, for the log.
constexpr Duration kQuiet = Duration::Seconds(5);

cache::RingConfig RingOf(const std::vector<ServerAddress>& servers) {
  cache::RingConfig config;
  for (const ServerAddress& server : servers) {
    cache::Replica& replica = config.replicas.emplace_back();
    replica.name = server.ToString();
  }
  return config;
}

uint64_t Drawn() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

ServerSet::ServerSet(ClientContext& context)
    : context_(context),
      ring_(RingOf(context.options.servers)),
      preference_(context.options.seed != 0 ? context.options.seed : Drawn()) {
  const ClientOptions& options = context.options;
  TAILCAST_CHECK(!options.servers.empty() && options.servers.size() <= kServersMax,
                 "a memcached client needs 1 to 64 servers");
  const ItemFormat format(options.key_space);
  for (const ServerAddress& address : options.servers) {
    Server& server = servers_.emplace_back();
    server.name = address.ToString();
    server.thread = std::make_unique<ServerThread>(
        context.loop, address, format,
        ServerThread::Options{.server_timeout = options.server_timeout,
                              .time_to_live = options.time_to_live,
                              .cas_rounds_max = options.cas_rounds_max});
  }
}

ServerSet::~ServerSet() {
  for (Server& server : servers_) server.thread->Stop();
}

cache::Owners ServerSet::PreferredOwners(const cache::Key& key) const {
  cache::Owners owners = ring_.OwnersOf(key);
  const uint64_t mixed = (key.lo ^ preference_) * 0x9e3779b97f4a7c15;
  const auto first = static_cast<uint32_t>(((mixed >> 32) * owners.count) >> 32);
  std::rotate(owners.replica.begin(), owners.replica.begin() + first,
              owners.replica.begin() + owners.count);
  return owners;
}

uint32_t ServerSet::usable() const {
  uint32_t usable = 0;
  for (uint16_t i = 0; i < servers_.size(); ++i) usable += Usable(i) ? 1 : 0;
  return usable;
}

bool ServerSet::Take(Server& server, uint64_t bytes) {
  if (server.inflight_bytes + bytes > context_.options.inflight_bytes_max) {
    ++context_.stats.window_full_requests;
    return false;
  }
  if (!server.health.TryAsk(context_.loop.Now())) {
    ++context_.stats.left_alone_requests;
    return false;
  }
  server.inflight_bytes += bytes;
  return true;
}

OwnedCounter& ServerSet::CounterOf(RequestOutcome outcome) {
  ClientStats& stats = context_.stats;
  switch (outcome) {
    case RequestOutcome::kUnreachable:
      return stats.unreachable_requests;
    case RequestOutcome::kBroken:
      return stats.broken_requests;
    case RequestOutcome::kTimeout:
      return stats.timed_out_requests;
    case RequestOutcome::kRefused:
      return stats.refused_requests;
    case RequestOutcome::kLate:
      return stats.late_requests;
    case RequestOutcome::kAnswered:
    case RequestOutcome::kNotTaken:
    case RequestOutcome::kAfterFailure:
      break;
  }
  return stats.skipped_requests;
}

void ServerSet::Ended(Server& server, uint64_t bytes, MonotonicTime asked, RequestOutcome outcome,
                      uint64_t reconnections) {
  server.inflight_bytes -= bytes;
  context_.stats.reconnections += reconnections;
  switch (outcome) {
    case RequestOutcome::kAnswered:
      server.health.OnSuccess();
      if (!server.answers && context_.loop.Now() - server.told >= kQuiet) {
        server.answers = true;
        kLog.Info(server.name, " answers again");
      }
      break;
    case RequestOutcome::kUnreachable:
    case RequestOutcome::kBroken:
    case RequestOutcome::kTimeout:
    case RequestOutcome::kRefused:
      server.health.OnFailure(context_.loop.Now(), asked);
      ++CounterOf(outcome);
      server.told = context_.loop.Now();
      if (std::exchange(server.answers, false)) {
        kLog.Warn(server.name, " refuses, breaks off or does not answer in ",
                  context_.options.server_timeout.millis(), " ms; it is tried again and again");
      }
      break;
    case RequestOutcome::kLate:
    case RequestOutcome::kAfterFailure:
      server.health.OnNothing(asked);
      ++CounterOf(outcome);
      break;
    case RequestOutcome::kNotTaken:
      break;
  }
}

void ServerSet::Read(uint16_t server, std::vector<cache::Key> keys, uint64_t bytes,
                     MonotonicTime deadline, Callback<void(ReadAnswer)> done) {
  Server& target = servers_[server];
  if (!Take(target, bytes)) {
    context_.loop.Post(std::move(done).With(ReadAnswer()));
    return;
  }
  auto ended = [this, &target, bytes, asked = context_.loop.Now(),
                done = std::move(done)](ReadAnswer answer) mutable {
    Ended(target, bytes, asked, answer.outcome, answer.reconnections);
    done(std::move(answer));
  };
  target.thread->Read(std::move(keys), deadline, scope_.Bind(std::move(ended)));
}

void ServerSet::Write(uint16_t server,
                      std::shared_ptr<const std::vector<cache::Mutation>> mutations,
                      std::vector<uint32_t> which, uint64_t bytes, MonotonicTime deadline,
                      Callback<void(WriteAnswer)> done) {
  Server& target = servers_[server];
  if (!Take(target, bytes)) {
    WriteAnswer refused;
    refused.results.resize(which.size());
    context_.loop.Post(std::move(done).With(std::move(refused)));
    return;
  }
  auto ended = [this, &target, bytes, asked = context_.loop.Now(),
                done = std::move(done)](WriteAnswer answer) mutable {
    Ended(target, bytes, asked, answer.outcome, answer.reconnections);
    context_.stats.cas_retries += answer.cas_retries;
    context_.stats.cas_given_up += answer.cas_given_up;
    context_.stats.late_mutations += answer.late_mutations;
    context_.stats.damaged_items += answer.damaged_items;
    done(std::move(answer));
  };
  target.thread->Write(std::move(mutations), std::move(which), deadline,
                       scope_.Bind(std::move(ended)));
}

}  // namespace tailcast::memcached
