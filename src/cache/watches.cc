#include "tailcast/cache/watches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/cache/replica_link.h"
#include "tailcast/cache/value_memory.h"

namespace tailcast::cache {

Watches::~Watches() {
  while (!watches_.empty()) CancelWatch(watches_.begin()->first);
}

uint64_t Watches::WatchValue(Key key, Duration timeout, Callback<void(bool)> notify) {
  ++context_.counters.watches;
  const uint64_t id = next_watch_++;
  auto watch = std::make_unique<Watch>();
  watch->id = id;
  watch->key = key;
  watch->deadline = context_.loop.Now() + timeout;
  watch->notify = std::move(notify);
  Watch& placed = *watch;
  watches_.emplace(id, std::move(watch));
  if (!Place(placed)) {
    context_.loop.Post(placed.scope.Bind([this, id] { Notify(id, false); }));
  }
  return id;
}

bool Watches::Place(Watch& watch) {
  const ValueMemory::Value* const value = context_.values.Find(watch.key);
  if (value == nullptr) return false;
  const Owners owners = replicas_.PreferredOwners(watch.key);
  for (uint8_t i = 0; i < owners.count; ++i) {
    const ReplicaLinkPtr& link = replicas_.link(owners, i);
    if ((watch.tried & (1u << i)) != 0 || !link->ReadyNow() || !link->watchable()) continue;
    const std::optional<uint32_t> doorbell = value->DoorbellOf(link->geometry().generation);
    if (!doorbell.has_value()) continue;
    watch.tried |= static_cast<uint8_t>(1u << i);
    watch.link = link;
    watch.link_watch = link->Watch(
        layout::BucketOffset(layout::BucketOf(watch.key, link->geometry().bucket_count)), *doorbell,
        std::max(watch.deadline - context_.loop.Now(), Duration()),
        watch.scope.Bind(
            [this, &watch](fabric::WatchOutcome outcome) { OnDoorbell(watch, outcome); }));
    return true;
  }
  return false;
}

void Watches::OnDoorbell(Watch& watch, fabric::WatchOutcome outcome) {
  watch.link = nullptr;
  switch (outcome) {
    case fabric::WatchOutcome::kChanged:
    case fabric::WatchOutcome::kTimeout:
      return Notify(watch.id, true);
    case fabric::WatchOutcome::kRefused:
      ++context_.counters.watch_refusals;
      break;
    case fabric::WatchOutcome::kUnreachable:
      break;
  }
  if (!Place(watch)) Notify(watch.id, false);
}

void Watches::Notify(uint64_t id, bool watched) {
  if (watched) ++context_.counters.notifications;
  Callback<void(bool)> notify = std::move(watches_.at(id)->notify);
  CancelWatch(id);
  notify(watched);
}

void Watches::CancelWatch(uint64_t id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Watch& watch = *found->second;
  if (watch.link != nullptr) watch.link->CancelWatch(watch.link_watch);
  watches_.erase(found);
}

void Watches::OnRing() {
  for (const auto& [id, watch] : watches_) {
    context_.loop.Post(watch->scope.Bind([this, id = id] { Notify(id, true); }));
  }
}

}  // namespace tailcast::cache
