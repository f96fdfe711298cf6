#include "tailcast/cache/replica_set.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/hash.h"
#include "tailcast/base/rng.h"

namespace tailcast::cache {
namespace {

constexpr Duration kJudgeInterval = Duration::Millis(50);
constexpr Duration kConnectSpread = Duration::Seconds(1);

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
  std::vector<bool> known;
  for (const Replica& replica : config.replicas) {
    const auto same = std::find_if(old.begin(), old.end(), [&](const ReplicaLinkPtr& link) {
      return link != nullptr && link->replica().name == replica.name &&
             link->replica().incarnation == replica.incarnation &&
             link->replica().rpc_address == replica.rpc_address &&
             link->replica().fabric_addresses == replica.fabric_addresses;
    });
    known.push_back(same != old.end());
    links.push_back(known.back() ? std::exchange(*same, nullptr)
                                 : std::make_shared<ReplicaLink>(context_, fabric_, rpc_, replica));
    links.back()->set_standing({replica.whole, replica.votes_in_other});
  }
  liking_.clear();
  by_rank_.clear();
  for (const Replica& replica : config.replicas) {
    by_rank_.push_back(static_cast<uint16_t>(liking_.size()));
    liking_.push_back(Hash128(replica.name, preference_).hi);
  }
  std::stable_sort(by_rank_.begin(), by_rank_.end(),
                   [this](uint16_t a, uint16_t b) { return liking_[a] < liking_[b]; });
  rank_.resize(by_rank_.size());
  for (uint16_t rank = 0; rank < by_rank_.size(); ++rank) rank_[by_rank_[rank]] = rank;
  links_ = std::make_shared<const LinkTable>(std::move(links));
  rings_.Update(config);
  context_.configuration.SetMine(config.configuration_id);
  context_.epoch = config.epoch;
  for (const ReplicaLinkPtr& link : old) {
    if (link != nullptr) link->Retire();
  }
  for (size_t i = 0; i < links_->size(); ++i) {
    ReplicaLink& link = *(*links_)[i];
    if (link.state() != ReplicaLink::State::kIdle) continue;
    if (config.replicas[i].in_ring || PhaseOf(config.configuration_id) != RingPhase::kBoth) {
      link.Connect();
    } else if (!known[i]) {
      // It comes, and nobody reads it yet: clients don't come all at once.
      link.ConnectAfter(Duration::Micros(
          static_cast<int64_t>(liking_[i] % static_cast<uint64_t>(kConnectSpread.micros()))));
    }  // or its time to connect has been set
  }
}

Owners ReplicaSet::PreferredOwners(const Key& key) const {
  Owners owners = rings_.read().OwnersOf(key);
  // The replicas in one order for all keys, so that what is read together asks few of them, in one
  // message each. Over clients the order is uniform. Over shared memory nobody is spared by that:
  // there it is the configuration's, so that all clients of a host read the copy that is in the
  // processor's caches already, and each maps the pages of one replica.
  if (owners.count > 1) {
    const bool immediate = link(owners, 0)->immediate();
    // Minima and maxima: which of them is first can't be foretold, so a branch would cost more.
    const auto order = [&](size_t a, size_t b) {
      const uint16_t first = owners.replica[a], second = owners.replica[b];
      owners.replica[a] = std::min(first, second);
      owners.replica[b] = std::max(first, second);
    };
    const auto replace = [&](const std::vector<uint16_t>& by) {
      for (size_t i = 0; i < kReplicasPerKey; ++i) owners.replica[i] = by[owners.replica[i]];
    };
    if (!immediate) replace(rank_);
    order(0, 1);
    if (owners.count == kReplicasPerKey) {
      order(1, 2);
      order(0, 1);
    }
    if (!immediate) replace(by_rank_);
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

Owners ReplicaSet::OwnersForRead(const Key& key, bool chunk, uint32_t turn) {
  Owners preferred = chunk ? ChunkOwners(key) : PreferredOwners(key);
  const auto count = std::min<ptrdiff_t>(preferred.count, kReplicasPerKey);
  if (turn % kReplicasPerKey != 0 && count == kReplicasPerKey) {
    std::rotate(preferred.replica.begin(), preferred.replica.begin() + turn % kReplicasPerKey,
                preferred.replica.begin() + count);
  }
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
