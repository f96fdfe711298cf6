#include "tailcast/cell/cache_lease.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/strong.h"

namespace tailcast::cell {
namespace {

constexpr Duration kLookLeast = Duration::Millis(10);

}  // namespace

bool HasName(const v1::RegistrySnapshot& record, const std::string& name,
             ProcessIncarnation incarnation) {
  for (const auto* members : {&record.cache_members(), &record.other_cache_members()}) {
    for (const v1::CacheMember& member : *members) {
      if (member.name() != name) continue;
      return !member.lives().empty() && *member.lives().rbegin() == Raw(incarnation);
    }
  }
  return false;
}

CacheLease::CacheLease(EventLoop& loop, storage::Store& store, cache::Server& server,
                       std::string name, ProcessIncarnation incarnation)
    : loop_(loop),
      server_(server),
      name_(std::move(name)),
      incarnation_(incarnation),
      registry_(store),
      look_(loop) {}

void CacheLease::OnRenewed(MonotonicTime sent, const v1::RegisterReply& reply) {
  lease_ = Duration::Millis(reply.lease_ms());
  server_.Confirm({.asked = sent,
                   .lease = lease_,
                   .configuration = cache::ConfigurationId{reply.ring_configuration_id()},
                   .epoch = cache::CacheEpoch{reply.cache_epoch()}});
  // The next call goes out after a third of the lease (registration.h): only if its answer takes
  // long is the primary layer asked at all.
  due_ = false;
  LookAfter(lease_ * 2 / 5);
}

void CacheLease::LookAfter(Duration delay) {
  look_.After(std::max(delay, kLookLeast), scope_.Bind([this] { Look(); }));
}

void CacheLease::Look() {
  LookAfter(lease_ / 3);
  due_ = looking_;
  if (std::exchange(looking_, true)) return;
  registry_.ReadLast(
      scope_.Bind([this, looked = loop_.Now()](const Result<v1::RegistrySnapshot>& record) {
        OnRecord(looked, record);
      }));
}

void CacheLease::OnRecord(MonotonicTime looked, const Result<v1::RegistrySnapshot>& record) {
  looking_ = false;
  if (record.ok()) {
    server_.Confirm({.asked = looked,
                     .lease = lease_,
                     .configuration = cache::ConfigurationId{record->ring_configuration_id()},
                     .epoch = cache::CacheEpoch{record->cache_epoch()},
                     .by_record = true,
                     .other_life = !HasName(*record, name_, incarnation_)});
  }
  if (due_) Look();
}

}  // namespace tailcast::cell
