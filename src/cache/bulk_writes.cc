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
  auto* const bulk = bulks_.emplace(id, std::make_unique<Bulk>()).first->second.get();
  bulk->id = id;
  bulk->epoch = context_.epoch;
  timeout = std::min(timeout, kWriteDeadlineMax);
  bulk->deadline = context_.loop.Now() + timeout;
  bulk->done = std::move(done);
  bulk->keys = static_cast<uint32_t>(mutations.size());
  context_.counters.mutations += mutations.size();
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> open(replicas_.size(), kNone);  // request that is being filled, by replica
  for (uint32_t i = 0; i < mutations.size(); ++i) {
    const Mutation& mutation = mutations[i];
    const Owners owners = replicas_.OwnersOf(mutation.key);
    bulk->core.AddKey(owners.count);
    bulk->chunks.push_back(mutation.rule == MergeRule::kLongerWins);
    for (uint8_t r = 0; r < owners.count; ++r) {
      if (mutation.value.size() > layout::kValueBytesMax && !mutation.erase) {
        // As the server would say; but a call may not carry it there.
        bulk->core.OnResult(i, MutationResult::kRefused, true);
        continue;
      }
      size_t& request = open[owners.replica[r]];
      if (request == kNone || bulk->requests[request].bytes >= context_.options.request_bytes_max) {
        request = bulk->requests.size();
        bulk->requests.emplace_back();
        bulk->requests.back().link = replicas_.link(owners, r);
      }
      Request& target = bulk->requests[request];
      target.keys.push_back(i);
      target.bytes += mutation.value.size() + 32;
      wire::Append(*target.message.mutable_batch(), mutation.key, mutation.rule, mutation.erase,
                   mutation.erase ? std::string_view() : std::string_view(mutation.value));
    }
  }
  for (size_t request = 0; request < bulk->requests.size(); ++request) {
    Send(*bulk, request, timeout);
  }
  AnswerIfDecided(*bulk);
  ForgetIfAnswered(*bulk);
}

void BulkWrites::Send(Bulk& bulk, size_t index, Duration timeout) {
  Request& request = bulk.requests[index];
  rpc::Client* const client = request.link->rpc();
  uint64_t& inflight_bytes = inflight_bytes_[request.link.get()];
  if (client == nullptr || inflight_bytes + request.bytes > context_.options.inflight_bytes_max) {
    if (inflight_bytes == 0) inflight_bytes_.erase(request.link.get());
    ++context_.counters.replica_errors;
    for (const uint32_t key : request.keys) bulk.core.OnFailure(key);
    return;
  }
  inflight_bytes += request.bytes;
  request.call = drains_.Begin();
  request.message.set_configuration_id(Raw(context_.configuration.mine()));
  request.message.set_epoch(Raw(bulk.epoch));
  request.message.set_incarnation(Raw(request.link->replica().incarnation));
  std::string bytes = request.message.SerializeAsString();
  request.message.Clear();
  ++bulk.calls;
  client->Call("/" + context_.options.service + "/Mutate", std::move(bytes), timeout,
               scope_.Bind([this, &bulk, index](Result<std::string> reply) {
                 OnReply(bulk, index, reply);
               }));
}

void BulkWrites::OnReply(Bulk& bulk, size_t index, const Result<std::string>& bytes) {
  const Request& request = bulk.requests[index];
  --bulk.calls;
  const auto inflight = inflight_bytes_.find(request.link.get());
  if ((inflight->second -= request.bytes) == 0) inflight_bytes_.erase(inflight);
  v1::CacheMutateReply reply;
  // A process that was stopped may find answers that came too late to count.
  const bool late = context_.loop.Now() > bulk.deadline;
  const bool parsed = bytes.ok() && !late && reply.ParseFromString(*bytes);
  const bool fits = parsed && reply.results().size() == request.keys.size();
  if (!fits) ++context_.counters.replica_errors;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const auto result = fits ? static_cast<uint8_t>(reply.results()[i]) : uint8_t{0xff};
    if (result > static_cast<uint8_t>(MutationResult::kRefused)) {
      bulk.core.OnFailure(request.keys[i]);
      continue;
    }
    if (result == static_cast<uint8_t>(MutationResult::kMismatch)) ++context_.counters.mismatches;
    const uint32_t key = request.keys[i];
    bulk.core.OnResult(key, static_cast<MutationResult>(result),
                       bulk.chunks[key] || request.link->whole());
  }
  if (parsed) context_.configuration.Saw(ConfigurationId{reply.configuration_id()});
  AnswerIfDecided(bulk);
  drains_.End(request.call);
  ForgetIfAnswered(bulk);
}

// On a turn of its own: this may be in a callback of a link that only the bulk keeps. And not
// retired to the loop: a link needs the context, so the bulk may not outlive us.
void BulkWrites::ForgetIfAnswered(Bulk& bulk) {
  if (bulk.calls > 0) return;
  context_.loop.Post(scope_.Bind([this, id = bulk.id] { bulks_.erase(id); }));
}

void BulkWrites::AnswerIfDecided(Bulk& bulk) {
  if (!bulk.core.decided() || bulk.done == nullptr) return;
  const MutationCore::Summary summary = bulk.core.summary();
  context_.counters.mutation_failures += summary.failed;
  Status status;
  if (summary.mismatched > 0) {
    status = DataLossError(std::to_string(summary.mismatched) + " of " + std::to_string(bulk.keys) +
                           " keys held bytes that contradict those written; both were dropped");
  } else if (bulk.epoch != context_.epoch) {
    // What whole replicas acknowledged before may be lost.
    status = UnavailableError("the caches began a new epoch during the write; write again");
  } else if (summary.failed > 0) {
    const std::string text = std::to_string(summary.failed) + " of " + std::to_string(bulk.keys) +
                             " keys have fewer than two acknowledgements";
    status = summary.refused > 0 ? ResourceExhaustedError(text + " (refused: no room)")
                                 : UnavailableError(text);
  }
  // Neither after the caller's end nor after ours.
  context_.loop.Post(
      scope_.Bind([done = std::exchange(bulk.done, nullptr), status = std::move(status)]() mutable {
        done(std::move(status));
      }));
}

}  // namespace tailcast::cache
