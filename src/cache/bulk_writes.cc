#include "tailcast/cache/bulk_writes.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_link.h"

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
  bulk->timer.At(bulk->deadline, scope_.Bind([this, bulk] { OnDeadline(*bulk); }));
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
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> open(replicas_.size(), kNone);  // request that is being filled, by replica
  const size_t first = bulk.requests.size();
  for (uint32_t i = 0; i < bulk.mutations.size(); ++i) {
    const Mutation& mutation = bulk.mutations[i];
    const WriteOwners owners = replicas_.WriteOwnersOf(mutation.key);
    // A chunk is right wherever it is found, and who reads the other ring finds it in this one or
    // in the primary layer: nobody waits until members who have just come can be reached.
    const bool chunk = mutation.rule == MergeRule::kLongerWins;
    bulk.core.AddKey(owners.read, chunk ? uint8_t{0} : owners.other);
    for (uint8_t r = 0; r < owners.all.count; ++r) {
      if (mutation.value.size() > layout::kValueBytesMax && !mutation.erase) {
        // As the server would say; but a call may not carry it there.
        bulk.core.OnResult(i, MutationResult::kRefused, owners.in[r], owners.in[r]);
        continue;
      }
      size_t& request = open[owners.all.replica[r]];
      const size_t value_bytes = mutation.erase ? 0 : mutation.value.size();
      if (request == kNone || bulk.requests[request].message.FullFor(value_bytes) ||
          bulk.requests[request].message.bytes() >= context_.options.request_bytes_max) {
        request = bulk.requests.size();
        Request& made = bulk.requests.emplace_back();
        made.link = replicas_.link(owners.all, r);
        made.votes = made.link->standing();
        made.attempt = bulk.attempt;
        made.configuration = bulk.configuration;
      }
      Request& target = bulk.requests[request];
      target.keys.push_back(i);
      target.in.push_back(owners.in[r]);
      target.message.Add(mutation.key, mutation.rule, mutation.erase, mutation.value);
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
  WriteLink& writes = request.link->writes();
  if (writes.bytes() + request.message.bytes() > context_.options.inflight_bytes_max) {
    ++context_.counters.write_window_full;
    return Fail(bulk, request);
  }
  request.message.set_context(
      {bulk.configuration, bulk.epoch, request.link->replica().incarnation});
  ++bulk.under_way;
  request.write = writes.Write(&request.message, bulk.deadline,
                               scope_.Bind([this, &bulk, index](const WriteLink::Outcome& outcome) {
                                 OnOutcome(bulk, index, outcome);
                               }));
}

OwnedCounter& BulkWrites::CauseOf(const Request& request, const WriteLink::Outcome& outcome) {
  ClientCounters& counters = context_.counters;
  switch (outcome.failure) {
    case WriteLink::Failure::kNone:
      break;
    case WriteLink::Failure::kNoAddress:
      return counters.write_no_address;
    case WriteLink::Failure::kTimeout:
      return counters.write_timeout;
    case WriteLink::Failure::kUnreachable:
      return counters.write_unreachable;
    case WriteLink::Failure::kChannelBroken:
      return counters.write_channel_broken;
    case WriteLink::Failure::kBadReply:
      return counters.write_bad_reply;
  }
  switch (outcome.answer.status) {
    case MutateStatus::kOldRing:
      return outcome.answer.configuration > request.configuration ? counters.write_old_ring
                                                                  : counters.write_old_epoch;
    case MutateStatus::kOtherIncarnation:
      return counters.write_other_incarnation;
    case MutateStatus::kNotServing:
      return counters.write_not_serving;
    case MutateStatus::kDone:
    case MutateStatus::kMalformed:
      break;
  }
  return counters.write_bad_reply;
}

void BulkWrites::OnOutcome(Bulk& bulk, size_t index, const WriteLink::Outcome& outcome) {
  // A process that was stopped may find answers that came too late to count.
  if (context_.loop.Now() > bulk.deadline) return OnDeadline(bulk);
  --bulk.under_way;
  Request& request = bulk.requests[index];
  request.write = 0;
  const MutateAnswer& answer = outcome.answer;
  const bool answered = outcome.failure == WriteLink::Failure::kNone;
  if (answered) context_.configuration.Saw(answer.configuration);
  if (answered && answer.status == MutateStatus::kDone &&
      answer.results.size() == request.keys.size()) {
    TakeResults(bulk, request, answer.results);
  } else {
    ++CauseOf(request, outcome);
    if (answered && answer.status == MutateStatus::kOldRing && request.attempt == bulk.attempt &&
        !bulk.answered) {
      OnOutdated(bulk, index);
    } else if (request.attempt == bulk.attempt) {
      Fail(bulk, request);
    }
  }
  AnswerIfDecided(bulk);
  ForgetIfAnswered(bulk);
}

void BulkWrites::TakeResults(Bulk& bulk, const Request& request, std::string_view results) {
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const auto result = static_cast<uint8_t>(results[i]);
    const uint32_t key = request.keys[i];
    if (result == static_cast<uint8_t>(MutationResult::kMismatch)) {
      ++context_.counters.write_mismatches;
      const Mutation& mutation = bulk.mutations[key];
      context_.contradictions.Say(context_.loop.Now(), mutation.key,
                                  std::to_string(mutation.value.size()) +
                                      " bytes that were written contradict those of " +
                                      request.link->replica().name + "; both were dropped there");
    }
    if (request.attempt != bulk.attempt) continue;
    if (result > static_cast<uint8_t>(MutationResult::kRefused)) {
      bulk.core.OnFailure(key, request.in[i]);
      continue;
    }
    const bool chunk = bulk.mutations[key].rule == MergeRule::kLongerWins;
    bulk.core.OnResult(key, static_cast<MutationResult>(result), request.in[i],
                       chunk ? MutationCore::Rings{true, true} : request.votes);
  }
}

// What has no answer now, has none that counts.
void BulkWrites::OnDeadline(Bulk& bulk) {
  for (Request& request : bulk.requests) {
    if (request.write == 0) continue;
    request.link->writes().Cancel(std::exchange(request.write, 0));
    --bulk.under_way;
    ++context_.counters.write_timeout;
    if (request.attempt == bulk.attempt) Fail(bulk, request);
  }
  for (const size_t refused : std::exchange(bulk.outdated, {})) Fail(bulk, bulk.requests[refused]);
  AnswerIfDecided(bulk);
  ForgetIfAnswered(bulk);
}

bool BulkWrites::KnowsNewer(const Bulk& bulk) const {
  return bulk.configuration < context_.configuration.mine() || bulk.epoch < context_.epoch;
}

void BulkWrites::OnOutdated(Bulk& bulk, size_t index) {
  bulk.outdated.push_back(index);
  if (KnowsNewer(bulk)) Attempt(bulk);
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
  if (bulk.under_way > 0 || !bulk.answered || bulk.call == 0) return;
  bulk.timer.Cancel();
  drains_.End(std::exchange(bulk.call, 0));
  context_.loop.Post(scope_.Bind([this, id = bulk.id] { bulks_.erase(id); }));
}

void BulkWrites::AnswerIfDecided(Bulk& bulk) {
  if (!bulk.core.decided() || bulk.answered) return;
  bulk.answered = true;
  bulk.outdated.clear();
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
