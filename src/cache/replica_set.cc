#include "tailcast/cache/replica_set.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

constexpr Duration kJudgeInterval = Duration::Millis(50);

}  // namespace

ReplicaSet::ReplicaSet(ClientContext& context, fabric::Connector& fabric, rpc::Connector& rpc)
    : context_(context),
      fabric_(fabric),
      rpc_(rpc),
      preference_(
          internal::HashFinish(context.options.seed != 0 ? context.options.seed : RandomSeed())) {}

void ReplicaSet::Update(RingConfig config) {
  if (configured_ && config.configuration_id < context_.configuration.mine()) return;
  configured_ = !config.replicas.empty();
  LinkTable old = *links_, links;
  for (const Replica& replica : config.replicas) {
    const auto same = std::find_if(old.begin(), old.end(), [&](const ReplicaLinkPtr& link) {
      return link != nullptr && link->replica().name == replica.name &&
             link->replica().incarnation == replica.incarnation &&
             link->replica().rpc_address == replica.rpc_address &&
             link->replica().fabric_addresses == replica.fabric_addresses;
    });
    links.push_back(same != old.end()
                        ? std::exchange(*same, nullptr)
                        : std::make_shared<ReplicaLink>(context_, fabric_, rpc_, replica));
    links.back()->set_standing({replica.whole, replica.votes_in_other});
  }
  links_ = std::make_shared<const LinkTable>(std::move(links));
  rings_.Update(config);
  context_.configuration.SetMine(config.configuration_id);
  context_.epoch = config.epoch;
  for (const ReplicaLinkPtr& link : old) {
    if (link != nullptr) link->Retire();
  }
  for (const ReplicaLinkPtr& link : *links_) {
    if (link->state() == ReplicaLink::State::kIdle) link->Connect();
  }
}

Owners ReplicaSet::PreferredOwners(const Key& key) const {
  Owners owners = rings_.read().OwnersOf(key);
  // One replica of each key is this client's first choice, so that what it remembers of places is
  // of use; over clients and keys the choice is uniform.
  // Over shared memory nobody's network is spared by that, and all clients of a host do better with
  // the copy that is in the processor's caches already.
  if (owners.count > 1 && !link(owners, 0)->immediate()) {
    const uint64_t mixed = (key.lo ^ preference_) * 0x9e3779b97f4a7c15;
    const auto first = static_cast<uint32_t>(((mixed >> 32) * owners.count) >> 32);
    if (first != 0) {
      std::rotate(owners.replica.begin(), owners.replica.begin() + first,
                  owners.replica.begin() + owners.count);
    }
  }
  return owners;
}

Owners ReplicaSet::ChunkOwners(const Key& key) const {
  Owners owners = PreferredOwners(key);
  if (PhaseOf(context_.configuration.mine()) != RingPhase::kNew) return owners;
  const Owners before = rings_.other().OwnersOf(key);
  for (uint8_t i = 0; i < before.count; ++i) owners.Add(before.replica[i]);
  return owners;
}

Owners ReplicaSet::OwnersForRead(const Key& key, bool chunk) {
  const Owners preferred = chunk ? ChunkOwners(key) : PreferredOwners(key);
  if (!any_avoided_) return preferred;
  Owners owners = preferred;
  uint8_t next = 0;
  for (const bool avoided : {false, true}) {
    for (uint8_t i = 0; i < preferred.count; ++i) {
      if (link(preferred, i)->speed().avoided() == avoided) {
        owners.replica[next++] = preferred.replica[i];
      }
    }
  }
  if (next > 0 && owners.replica[0] != preferred.replica[0]) ++context_.counters.avoiding_reads;
  return owners;
}

void ReplicaSet::JudgeSpeeds() {
  const MonotonicTime now = context_.loop.Now();
  if (now < judge_at_) return;
  judge_at_ = now + kJudgeInterval;
  std::vector<ReplicaSpeed*> speeds;
  for (const ReplicaLinkPtr& link : *links_) speeds.push_back(&link->speed());
  context_.counters.slow_replicas += tailcast::cache::JudgeSpeeds(speeds);
  any_avoided_ = std::any_of(speeds.begin(), speeds.end(),
                             [](const ReplicaSpeed* speed) { return speed->avoided(); });
}

uint32_t ReplicaSet::ready() const {
  return static_cast<uint32_t>(std::count_if(
      links_->begin(), links_->end(),
      [](const ReplicaLinkPtr& link) { return link->state() == ReplicaLink::State::kReady; }));
}

}  // namespace tailcast::cache
