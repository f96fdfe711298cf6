// Mutations on their way: each bulk becomes one call or a few to every server that it concerns, and
// is answered as soon as the outcome of each key is decided (MutationCore), or can't change.
//
// Threads: the loop's. Bounded: bytes on their way to each replica; beyond it a call counts as a
// failure of that replica alone, like any other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client_context.h"
#include "tailcast/cache/drains.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/replica_set.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::cache {

class BulkWrites {
 public:
  // Both outlive it.
  BulkWrites(ClientContext& context, const ReplicaSet& replicas)
      : context_(context), replicas_(replicas), drains_(&context.loop) {}

  // As Client's.
  void Mutate(std::vector<Mutation> mutations, Duration timeout, Callback<void(Status)> done);
  void Drain(Callback<void()> done) { drains_.Drain(std::move(done)); }

 private:
  struct Request {
    ReplicaLinkPtr link;  // stays until the answer, also when its replica leaves the configuration
    std::vector<uint32_t> keys;
    v1::CacheMutateRequest message;
    uint64_t bytes = 0;
    uint64_t call = 0;  // of drains_
  };
  struct Bulk {
    uint64_t id = 0;
    CacheEpoch epoch{};  // that it began in
    MonotonicTime deadline;
    MutationCore core;
    std::vector<bool> chunks;  // by key: every acknowledgement counts
    std::vector<Request> requests;
    uint32_t keys = 0;
    size_t calls = 0;             // without an answer
    Callback<void(Status)> done;  // empty: answered
  };

  void Send(Bulk& bulk, size_t index, Duration timeout);
  void OnReply(Bulk& bulk, size_t index, const Result<std::string>& bytes);
  void AnswerIfDecided(Bulk& bulk);
  void ForgetIfAnswered(Bulk& bulk);

  ClientContext& context_;
  const ReplicaSet& replicas_;
  Drains drains_;
  std::unordered_map<uint64_t, std::unique_ptr<Bulk>> bulks_;
  uint64_t next_bulk_ = 1;
  // Of links to which something is on its way.
  std::unordered_map<const ReplicaLink*, uint64_t> inflight_bytes_;
  Scope scope_;
};

}  // namespace tailcast::cache
