#include "tailcast/cache/bulk_writes.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tailcast/base/strong.h"
#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_link.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {

void BulkWrites::Mutate(std::vector<Mutation> mutations, Duration timeout,
                        Callback<void(Status)> done) {
  const uint64_t id = next_bulk_++;
  auto* const bulk = bulks_.emplace(id, std::make_unique<Bulk>(context_.loop)).first->second.get();
  bulk->id = id;
  bulk->deadline = context_.loop.Now() + std::min(timeout, kWriteDeadlineMax);
  bulk->done = std::move(done);
  bulk->mutations = std::move(mutations);
  bulk->call = drains_.Begin();
  context_.counters.mutations += bulk->mutations.size();
  Attempt(*bulk);
  AnswerIfDecided(*bulk);
}

void BulkWrites::Attempt(Bulk& bulk) {
  ++bulk.attempt;
  bulk.configuration = context_.configuration.mine();
  bulk.epoch = context_.epoch;
  bulk.mismatched |= bulk.core.summary().mismatched > 0;
  bulk.core = MutationCore();
  bulk.outdated.clear();
  bulk.timer.Cancel();
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> open(replicas_.size(), kNone);  // request that is being filled, by replica
  const size_t first = bulk.requests.size();
  for (uint32_t i = 0; i < bulk.mutations.size(); ++i) {
    const Mutation& mutation = bulk.mutations[i];
    const WriteOwners owners = replicas_.WriteOwnersOf(mutation.key);
    bulk.core.AddKey(owners.read, owners.other);
    for (uint8_t r = 0; r < owners.all.count; ++r) {
      if (mutation.value.size() > layout::kValueBytesMax && !mutation.erase) {
        // As the server would say; but a call may not carry it there.
        bulk.core.OnResult(i, MutationResult::kRefused, owners.in[r], owners.in[r]);
        continue;
      }
      size_t& request = open[owners.all.replica[r]];
      if (request == kNone || bulk.requests[request].bytes >= context_.options.request_bytes_max) {
        request = bulk.requests.size();
        Request& made = bulk.requests.emplace_back();
        made.link = replicas_.link(owners.all, r);
        made.votes = made.link->standing();
        made.attempt = bulk.attempt;
      }
      Request& target = bulk.requests[request];
      target.keys.push_back(i);
      target.in.push_back(owners.in[r]);
      target.bytes += mutation.value.size() + 32;
      wire::Append(*target.message.mutable_batch(), mutation.key, mutation.rule, mutation.erase,
                   mutation.erase ? std::string_view() : std::string_view(mutation.value));
    }
  }
  for (size_t request = first; request < bulk.requests.size(); ++request) Send(bulk, request);
}

void BulkWrites::Fail(Bulk& bulk, const Request& request) {
  for (size_t i = 0; i < request.keys.size(); ++i) {
    bulk.core.OnFailure(request.keys[i], request.in[i]);
  }
}

void BulkWrites::Send(Bulk& bulk, size_t index) {
  Request& request = bulk.requests[index];
  rpc::Client* const client = request.link->rpc();
  uint64_t& inflight_bytes = inflight_bytes_[request.link.get()];
  if (client == nullptr || inflight_bytes + request.bytes > context_.options.inflight_bytes_max) {
    if (inflight_bytes == 0) inflight_bytes_.erase(request.link.get());
    ++(client == nullptr ? context_.counters.write_no_address
                         : context_.counters.write_window_full);
    return Fail(bulk, request);
  }
  inflight_bytes += request.bytes;
  request.message.set_configuration_id(Raw(bulk.configuration));
  request.message.set_epoch(Raw(bulk.epoch));
  request.message.set_incarnation(Raw(request.link->replica().incarnation));
  std::string bytes = request.message.SerializeAsString();
  request.message.Clear();
  ++bulk.calls;
  const Duration timeout = std::max(bulk.deadline - context_.loop.Now(), Duration::Millis(1));
  client->Call("/" + context_.options.service + "/Mutate", std::move(bytes), timeout,
               scope_.Bind([this, &bulk, index](Result<std::string> reply) {
                 OnReply(bulk, index, reply);
               }));
}

OwnedCounter& BulkWrites::CauseOf(const Status& status, bool late, bool refused) {
  ClientCounters& counters = context_.counters;
  if (late) return counters.write_timeout;
  if (refused) return counters.write_old_ring;
  switch (CallFailureOf(status)) {
    case CallFailure::kTimeout:
      return counters.write_timeout;
    case CallFailure::kUnreachable:
      return counters.write_unreachable;
    case CallFailure::kOtherIncarnation:
      return counters.write_other_incarnation;
    case CallFailure::kBadReply:
      break;
  }
  return counters.write_bad_reply;
}

void BulkWrites::OnReply(Bulk& bulk, size_t index, const Result<std::string>& bytes) {
  --bulk.calls;
  const Request& request = bulk.requests[index];
  const auto inflight = inflight_bytes_.find(request.link.get());
  if ((inflight->second -= request.bytes) == 0) inflight_bytes_.erase(inflight);
  v1::CacheMutateReply reply;
  // A process that was stopped may find answers that came too late to count.
  const bool late = context_.loop.Now() > bulk.deadline;
  const bool parsed = bytes.ok() && !late && reply.ParseFromString(*bytes);
  if (parsed) context_.configuration.Saw(ConfigurationId{reply.configuration_id()});
  const bool fits = parsed && reply.results().size() == request.keys.size();
  if (!fits) ++CauseOf(bytes.status(), late, parsed && reply.results().empty());
  if (fits) {
    for (size_t i = 0; i < request.keys.size(); ++i) {
      const auto result = static_cast<uint8_t>(reply.results()[i]);
      const uint32_t key = request.keys[i];
      const bool mismatch = result == static_cast<uint8_t>(MutationResult::kMismatch);
      if (mismatch) ++context_.counters.mismatches;
      if (request.attempt != bulk.attempt) continue;
      if (result > static_cast<uint8_t>(MutationResult::kRefused)) {
        bulk.core.OnFailure(key, request.in[i]);
        continue;
      }
      const bool chunk = bulk.mutations[key].rule == MergeRule::kLongerWins;
      bulk.core.OnResult(key, static_cast<MutationResult>(result), request.in[i],
                         chunk ? MutationCore::Rings{true, true} : request.votes);
    }
  } else if (parsed && reply.results().empty() && request.attempt == bulk.attempt &&
             !bulk.answered) {
    OnOutdated(bulk, index);  // `request` may be elsewhere after it
  } else if (request.attempt == bulk.attempt) {
    Fail(bulk, request);
  }
  AnswerIfDecided(bulk);
  ForgetIfAnswered(bulk);
}

bool BulkWrites::KnowsNewer(const Bulk& bulk) const {
  return bulk.configuration < context_.configuration.mine() || bulk.epoch < context_.epoch;
}

void BulkWrites::OnOutdated(Bulk& bulk, size_t index) {
  bulk.outdated.push_back(index);
  if (KnowsNewer(bulk)) return Attempt(bulk);
  bulk.timer.At(bulk.deadline, scope_.Bind([this, &bulk] {
    for (const size_t refused : bulk.outdated) Fail(bulk, bulk.requests[refused]);
    AnswerIfDecided(bulk);
  }));
}

void BulkWrites::OnRing() {
  for (const auto& [id, bulk] : bulks_) {
    if (bulk->outdated.empty() || !KnowsNewer(*bulk)) continue;
    Attempt(*bulk);
    AnswerIfDecided(*bulk);
  }
}

// On a turn of its own: this may be in a callback of a link that only the bulk keeps. And not
// retired to the loop: a link needs the context, so the bulk may not outlive us.
void BulkWrites::ForgetIfAnswered(Bulk& bulk) {
  if (bulk.calls > 0 || !bulk.answered) return;
  drains_.End(bulk.call);
  context_.loop.Post(scope_.Bind([this, id = bulk.id] { bulks_.erase(id); }));
}

void BulkWrites::AnswerIfDecided(Bulk& bulk) {
  if (!bulk.core.decided() || bulk.answered) return;
  bulk.answered = true;
  bulk.outdated.clear();
  bulk.timer.Cancel();
  const MutationCore::Summary summary = bulk.core.summary();
  context_.counters.mutation_failures += summary.failed;
  Status status;
  if (summary.mismatched > 0 || bulk.mismatched) {
    status = DataLossError(std::to_string(std::max(summary.mismatched, 1u)) + " of " +
                           std::to_string(bulk.mutations.size()) +
                           " keys held bytes that contradict those written; both were dropped");
  } else if (bulk.epoch != context_.epoch) {
    // What whole replicas acknowledged before may be lost.
    status = UnavailableError("the caches began a new epoch during the write; write again");
  } else if (summary.failed > 0) {
    const std::string text = std::to_string(summary.failed) + " of " +
                             std::to_string(bulk.mutations.size()) +
                             " keys have fewer than two acknowledgements";
    status = summary.refused > 0 ? ResourceExhaustedError(text + " (refused: no room)")
                                 : UnavailableError(text);
  }
  // Neither after the caller's end nor after ours.
  if (bulk.done != nullptr) {
    context_.loop.Post(
        scope_.Bind([done = std::move(bulk.done), status = std::move(status)]() mutable {
          done(std::move(status));
        }));
  }
  ForgetIfAnswered(bulk);
}

}  // namespace tailcast::cache
