// Renews the lease of a cache server (cache/server.h): by the answers of the cell's scheduler,
// which goes on without a replica only when it has not heard of it for longer than the lease; and
// while it does not answer, by the record of the registry in the cell's primary layer. As long as
// that has the ring and the epoch that the server knows, and the server's life as the last of its
// name, nobody has gone on without it; a scheduler that will writes that down first
// (cell/cache_members.h).
//
//   the scheduler is   the primary layer   the server
//   there              any                 serves
//   away               there               serves as long as nothing has changed
//   away               away                closes its metadata after the lease: who is cut off from
//                                          both can't know what the others do
//
// A look at the record is due each third of the lease, one at a time; one that fell due meanwhile
// begins when that ends. So as long as two of them take no longer than the lease, it is renewed.
//
// Threads: the loop's.
#pragma once

#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/server.h"
#include "tailcast/cell/registry_reader.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/storage/store.h"

namespace tailcast::cell {

class CacheLease {
 public:
  // `name`, `incarnation`: of the cache, as the registry has them. All outlive it.
  CacheLease(EventLoop& loop, storage::Store& store, cache::Server& server, std::string name,
             ProcessIncarnation incarnation);
  CacheLease(const CacheLease&) = delete;
  CacheLease& operator=(const CacheLease&) = delete;

  // The scheduler has answered a call that was sent at `sent`.
  void OnRenewed(MonotonicTime sent, const v1::RegisterReply& reply);

 private:
  void LookAfter(Duration delay);
  void Look();
  void OnRecord(MonotonicTime looked, const Result<v1::RegistrySnapshot>& record);

  EventLoop& loop_;
  cache::Server& server_;
  const std::string name_;
  const ProcessIncarnation incarnation_;
  RegistryReader registry_;
  Duration lease_;  // that the scheduler gave last
  bool looking_ = false;
  bool due_ = false;  // the next look, while one is under way
  Timer look_;
  Scope scope_;
};

// Whether this life is the last one that had the name, as the record says.
bool HasName(const v1::RegistrySnapshot& record, const std::string& name,
             ProcessIncarnation incarnation);

}  // namespace tailcast::cell
