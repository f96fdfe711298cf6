// Mutations on their way: each bulk becomes one message or a few to every server that it concerns,
// and is answered as soon as the outcome of each key is decided (MutationCore), or can't change.
// When a server refuses it because there is a newer ring or epoch, it is written again to those of
// the newer one, as soon as that is known here and if that is before its deadline.
//
// Threads: the loop's. Bounded: bytes on their way to each replica; beyond it a message counts as a
// failure of that replica alone, like any other.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/drains.h"
#include "tailcast/cache/mutate_message.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_set.h"
#include "tailcast/cache/types.h"
#include "tailcast/cache/write_link.h"

namespace tailcast::cache {

class BulkWrites {
 public:
  // Both outlive it.
  BulkWrites(ClientContext& context, const ReplicaSet& replicas)
      : context_(context), replicas_(replicas), drains_(&context.loop) {}

  // As Client's.
  void Mutate(std::vector<Mutation> mutations, Duration timeout, Callback<void(Status)> done);
  void Drain(Callback<void()> done) { drains_.Drain(std::move(done)); }
  // The ring of `replicas` has changed.
  void OnRing();

 private:
  struct Request {
    ReplicaLinkPtr link;  // stays until the answer, also when its replica leaves the configuration
    MutationCore::Rings votes;
    uint32_t attempt = 0;
    ConfigurationId configuration{};  // that the attempt began in
    std::vector<uint32_t> keys;
    std::vector<MutationCore::Rings> in;  // of each key: the rings in which the replica owns it
    MutateMessage message;
    uint64_t write = 0;  // of the link, while it has no outcome
  };
  struct Bulk {
    explicit Bulk(EventLoop& loop) : timer(loop) {}
    uint64_t id = 0;
    MonotonicTime deadline;
    std::vector<Mutation> mutations;
    // The attempt under way, and the configuration and epoch that it began in.
    uint32_t attempt = 0;
    ConfigurationId configuration{};
    CacheEpoch epoch{};
    MutationCore core;
    // Requests that were refused for an older ring or epoch. They wait for a newer one until the
    // deadline.
    std::vector<size_t> outdated;
    Timer timer;  // the deadline

    std::deque<Request> requests;  // of all attempts
    uint64_t call = 0;        // of drains_: until it is answered and nothing of it is under way
    size_t under_way = 0;     // requests without an outcome
    bool mismatched = false;  // in an attempt before
    bool answered = false;
    Callback<void(Status)> done;
  };

  // Writes to the replicas of the ring as it is now.
  void Attempt(Bulk& bulk);
  void Send(Bulk& bulk, size_t index);
  // What counts a request that brought no results.
  OwnedCounter& CauseOf(const Request& request, const WriteLink::Outcome& outcome);
  void OnOutcome(Bulk& bulk, size_t index, const WriteLink::Outcome& outcome);
  void TakeResults(Bulk& bulk, const Request& request, std::string_view results);
  void OnOutdated(Bulk& bulk, size_t index);
  void OnDeadline(Bulk& bulk);
  bool KnowsNewer(const Bulk& bulk) const;
  void Fail(Bulk& bulk, const Request& request);
  void AnswerIfDecided(Bulk& bulk);
  void ForgetIfAnswered(Bulk& bulk);

  ClientContext& context_;
  const ReplicaSet& replicas_;
  Drains drains_;
  std::map<uint64_t, std::unique_ptr<Bulk>> bulks_;
  uint64_t next_bulk_ = 1;
  Scope scope_;
};

}  // namespace tailcast::cache
