#include "tailcast/memcached/writes.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tailcast::memcached {
namespace {

constexpr uint64_t kKeyBytes = 128;                        // what a mutation costs beside its value
constexpr Duration kTimeoutMax = Duration::Seconds(3600);  // for callers who would wait for ever

}  // namespace

void Writes::Mutate(std::vector<cache::Mutation> mutations, Duration timeout,
                    Callback<void(Status)> done) {
  const uint64_t id = ++last_bulk_;
  Bulk& bulk = *bulks_.emplace(id, std::make_unique<Bulk>(context_.loop)).first->second;
  bulk.done = std::move(done);
  bulk.keys = mutations.size();
  context_.counters.mutations += mutations.size();
  const auto shared = std::make_shared<const std::vector<cache::Mutation>>(std::move(mutations));
  bulk.mutations = shared;
  std::vector<Request> by_server(servers_.size());
  for (uint32_t i = 0; i < shared->size(); ++i) {
    const cache::Mutation& mutation = (*shared)[i];
    const cache::Owners owners = servers_.OwnersOf(mutation.key);
    bulk.core.AddKey(owners.count);
    for (uint8_t r = 0; r < owners.count; ++r) {
      Request& request = by_server[owners.replica[r]];
      request.keys.push_back(i);
      request.bytes += mutation.value.size() + kKeyBytes;
    }
  }
  timeout = std::min(timeout, kTimeoutMax);
  const MonotonicTime deadline = context_.loop.Now() + timeout;
  for (uint16_t server = 0; server < by_server.size(); ++server) {
    if (by_server[server].keys.empty()) continue;
    const size_t index = bulk.requests.size();
    Request& request = bulk.requests.emplace_back(std::move(by_server[server]));
    request.server = server;
    request.call = drains_.Begin();
    ++bulk.under_way;
    auto answered = [this, id, index](const WriteAnswer& answer) { OnAnswer(id, index, answer); };
    servers_.Write(server, shared, request.keys, request.bytes, deadline,
                   bulk.scope.Bind(std::move(answered)));
  }
  bulk.deadline.At(deadline, scope_.Bind([this, id] { OnDeadline(id); }));
  AnswerIfDecided(bulk);
  ForgetIfAnswered(id);
}

void Writes::End(Request& request, Bulk& bulk) {
  request.ended = true;
  --bulk.under_way;
  drains_.End(request.call);
}

void Writes::OnAnswer(uint64_t id, size_t request_index, const WriteAnswer& answer) {
  Bulk& bulk = *bulks_.at(id);
  Request& request = bulk.requests[request_index];
  for (size_t i = 0; i < request.keys.size(); ++i) {
    if (!answer.results[i].has_value()) {
      bulk.core.OnFailure(request.keys[i]);
      continue;
    }
    if (*answer.results[i] == cache::MutationResult::kMismatch) {
      ++context_.counters.write_mismatches;
      const cache::Mutation& mutation = (*bulk.mutations)[request.keys[i]];
      context_.contradictions.Say(
          context_.loop.Now(), mutation.key,
          std::to_string(mutation.value.size()) + " bytes that were written contradict those of " +
              servers_.NameOf(request.server) + "; both were dropped there");
    }
    bulk.core.OnResult(request.keys[i], *answer.results[i], true);
  }
  AnswerIfDecided(bulk);
  End(request, bulk);
  ForgetIfAnswered(id);
}

void Writes::OnDeadline(uint64_t id) {
  Bulk& bulk = *bulks_.at(id);
  for (Request& request : bulk.requests) {
    if (request.ended) continue;
    ++context_.counters.write_timeout;
    for (const uint32_t key : request.keys) bulk.core.OnFailure(key);
  }
  AnswerIfDecided(bulk);
  for (Request& request : bulk.requests) {
    if (!request.ended) End(request, bulk);
  }
  ForgetIfAnswered(id);
}

void Writes::AnswerIfDecided(Bulk& bulk) {
  if (!bulk.core.decided() || bulk.done == nullptr) return;
  // Neither after the caller's end nor after ours.
  context_.loop.Post(scope_.Bind([done = std::exchange(bulk.done, nullptr),
                                  status = StatusOf(bulk)]() mutable { done(std::move(status)); }));
}

void Writes::ForgetIfAnswered(uint64_t id) {
  const auto found = bulks_.find(id);
  if (found->second->under_way == 0) bulks_.erase(found);
}

Status Writes::StatusOf(const Bulk& bulk) {
  const cache::MutationCore::Summary summary = bulk.core.summary();
  context_.counters.mutation_failures += summary.failed;
  if (summary.mismatched > 0) {
    return DataLossError(std::to_string(summary.mismatched) + " of " + std::to_string(bulk.keys) +
                         " keys held bytes that contradict those written; both were dropped");
  }
  if (summary.failed == 0) return OkStatus();
  const std::string text = std::to_string(summary.failed) + " of " + std::to_string(bulk.keys) +
                           " keys have too few acknowledgements of memcached servers";
  return summary.refused > 0 ? ResourceExhaustedError(text + " (refused: no room)")
                             : UnavailableError(text);
}

}  // namespace tailcast::memcached
