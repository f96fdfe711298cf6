// Mutations on their way: each bulk becomes a request to every server that it concerns, and is
// answered as soon as the outcome of each key is decided (cache::MutationCore), or at its time-out.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/drains.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/types.h"
#include "tailcast/memcached/server_set.h"

namespace tailcast::memcached {

class Writes {
 public:
  // Both outlive it.
  Writes(ClientContext& context, ServerSet& servers)
      : context_(context), servers_(servers), drains_(&context.loop) {}

  // As cache::Client's.
  void Mutate(std::vector<cache::Mutation> mutations, Duration timeout,
              Callback<void(Status)> done);
  void Drain(Callback<void()> done) { drains_.Drain(std::move(done)); }

 private:
  struct Request {
    uint16_t server = 0;
    std::vector<uint32_t> keys;
    uint64_t bytes = 0;
    uint64_t call = 0;  // of drains_
    bool ended = false;
  };
  struct Bulk {
    explicit Bulk(EventLoop& loop) : deadline(loop) {}
    cache::MutationCore core;
    std::shared_ptr<const std::vector<cache::Mutation>> mutations;
    std::vector<Request> requests;
    size_t under_way = 0;
    size_t keys = 0;
    Callback<void(Status)> done;  // empty: answered
    Timer deadline;
    Scope scope;
  };

  void OnAnswer(uint64_t id, size_t request, const WriteAnswer& answer);
  void OnDeadline(uint64_t id);
  // After the bulk was answered, if it is: its caller hears before those who drain.
  void End(Request& request, Bulk& bulk);
  void AnswerIfDecided(Bulk& bulk);
  void ForgetIfAnswered(uint64_t id);
  Status StatusOf(const Bulk& bulk);

  ClientContext& context_;
  ServerSet& servers_;
  cache::Drains drains_;
  std::unordered_map<uint64_t, std::unique_ptr<Bulk>> bulks_;
  uint64_t last_bulk_ = 0;
  Scope scope_;
};

}  // namespace tailcast::memcached
