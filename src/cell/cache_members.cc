#include "tailcast/cell/cache_members.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/strong.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {

using cache::RingPhase;

namespace {

constexpr size_t kReplicasMax = 1000;
constexpr size_t kLivesMax = 16;

FAULT_POINT(kNameComesBack, "cell.name_comes_back",
            "a cache process whose name another one has taken gets it back");

std::vector<std::string> Sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> NamesOf(const CacheMembers::Members& members) {
  std::vector<std::string> names;
  for (const auto& [name, member] : members) names.push_back(name);
  return names;
}

std::string TextOf(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

template <typename Saved>
CacheMembers::Members Load(const Saved& saved) {
  CacheMembers::Members members;
  for (const v1::CacheMember& member : saved) {
    members[member.name()] = {ProcessIncarnation{member.whole_incarnation()}, member.excused()};
  }
  return members;
}

bool AnyMemcached(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), memcached::IsReplicaName);
}

}  // namespace

CacheMembers::CacheMembers(const v1::RegistrySnapshot& durable,
                           const std::vector<std::string>& declared, CacheMembersOptions options)
    : options_(options),
      wanted_(Sorted(declared)),
      declared_(durable.declared_caches().begin(), durable.declared_caches().end()),
      configuration_id_{durable.ring_configuration_id()},
      epoch_{durable.cache_epoch()},
      members_(Load(durable.cache_members())),
      other_(Load(durable.other_cache_members())),
      durable_(configuration_id_) {
  for (const Members* members : {&members_, &other_}) {
    for (const auto& [name, member] : *members) presence_[name] = {};
  }
  for (const auto* saved : {&durable.cache_members(), &durable.other_cache_members()}) {
    for (const v1::CacheMember& member : *saved) {
      if (member.lives().empty()) continue;
      std::vector<ProcessIncarnation>& lives = lives_[member.name()];
      lives.clear();
      for (const uint64_t life : member.lives()) lives.push_back(ProcessIncarnation{life});
    }
  }
  const std::vector<std::string> names = NamesOf(members_);
  // Servers of memcached know of no phases.
  const bool at_once = names.empty() || AnyMemcached(names) || AnyMemcached(wanted_);
  if (Raw(configuration_id_) == 0 || (at_once && names != wanted_)) {
    MakeRing(wanted_);
    return;
  }
  if (other_.empty() && phase() != RingPhase::kSettled) {  // of a snapshot that knew no phases
    configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_) + 1, RingPhase::kSettled);
    changed_ = true;
  }
  if (declared_.empty()) declared_ = names;
  ChangeToDeclared();
}

// Keys have other owners at once, so nothing is kept of what was acknowledged.
void CacheMembers::MakeRing(const std::vector<std::string>& names) {
  const Members before = std::exchange(members_, {});
  presence_.clear();
  for (const std::string& name : names) {
    const auto known = before.find(name);
    members_[name] = {known == before.end() ? ProcessIncarnation::kNone : known->second.whole,
                      true};
    presence_[name] = {};
  }
  other_.clear();
  Forget();
  declared_ = names;
  configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_) + 1, RingPhase::kSettled);
  epoch_ = Successor(epoch_);
  changed_ = true;
  events_.push_back({epoch_, RaiseCause::kRing, ""});
}

void CacheMembers::ChangeToDeclared() {
  if (phase() != RingPhase::kSettled || declared_ == wanted_ || wanted_.empty()) return;
  for (const std::string& name : wanted_) {
    if (!members_.contains(name) && !here_.contains(name)) return;  // until it is there
  }
  declared_ = wanted_;
  changed_ = true;
  if (wanted_ != NamesOf(members_)) BeginChange(wanted_);
}

void CacheMembers::BeginChange(const std::vector<std::string>& names) {
  configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_), RingPhase::kBoth);
  for (const std::string& name : names) {
    other_[name] = {};
    presence_.try_emplace(name);
  }
  both_since_.reset();
  changed_ = true;
}

Status CacheMembers::ChangeTo(const std::vector<std::string>& given) {
  const std::vector<std::string> names = Sorted(given);
  if (names.empty()) return InvalidArgumentError("replicas: a ring needs at least one");
  if (names.size() > kReplicasMax) {
    return InvalidArgumentError("replicas: a ring has at most " + std::to_string(kReplicasMax));
  }
  if (AnyMemcached(names) || AnyMemcached(NamesOf(members_))) {
    return FailedPreconditionError(
        "memcached servers are named by `caches` of the scheduler's configuration alone");
  }
  for (const std::string& name : names) {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(name, "replicas"));
  }
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return InvalidArgumentError("replicas names '" + *twice + "' twice");
  }
  if (phase() != RingPhase::kSettled) {
    const std::vector<std::string> target =
        NamesOf(phase() == RingPhase::kBoth ? other_ : members_);
    if (names == target) return OkStatus();
    return FailedPreconditionError("the ring is changing to " + TextOf(target) +
                                   "; wait for its end, or take that back first");
  }
  if (names != NamesOf(members_)) BeginChange(names);
  return OkStatus();
}

Status CacheMembers::Cancel() {
  if (phase() == RingPhase::kSettled) return FailedPreconditionError("the ring is not changing");
  if (phase() == RingPhase::kNew) {
    return FailedPreconditionError(
        "the new ring is read already; when the change has ended, change it again");
  }
  TakeBack();
  return OkStatus();
}

void CacheMembers::TakeBack() {
  configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_) + 1, RingPhase::kSettled);
  other_.clear();
  Forget();
  changed_ = true;
  ChangeToDeclared();
}

// Who is in no ring any more is nobody.
void CacheMembers::Forget() {
  const auto is_left = [this](const auto& known) { return !Knows(known.first); };
  std::erase_if(presence_, is_left);
  std::erase_if(lives_, is_left);
}

bool CacheMembers::IsReplaced(const std::string& name, ProcessIncarnation incarnation,
                              bool has_copied) const {
  const auto lives = lives_.find(name);
  if (lives == lives_.end() || lives->second.back() == incarnation || kNameComesBack.planted()) {
    return false;
  }
  const bool known =
      std::find(lives->second.begin(), lives->second.end(), incarnation) != lives->second.end();
  return known || has_copied;
}

void CacheMembers::NoteLife(const std::string& name, ProcessIncarnation incarnation) {
  std::vector<ProcessIncarnation>& lives = lives_[name];
  if (!lives.empty() && lives.back() == incarnation) return;
  std::erase(lives, incarnation);
  lives.push_back(incarnation);
  if (lives.size() > kLivesMax) lives.erase(lives.begin());
  changed_ = true;
}

bool CacheMembers::IsThere(const std::string& name) const {
  return presence_.at(name).report.incarnation != ProcessIncarnation::kNone;
}

bool CacheMembers::IsWhole(const std::string& name) const {
  const Member& member = members_.at(name);
  return IsThere(name) && !member.excused && presence_.at(name).report.incarnation == member.whole;
}

// Of the ring that comes. Who is in both is whole in both, or in none.
bool CacheMembers::IsFilled(const std::string& name) const {
  return IsThere(name) && presence_.at(name).report.incarnation == other_.at(name).whole &&
         (!members_.contains(name) || IsWhole(name));
}

void CacheMembers::OnRegistered(MonotonicTime now, const std::string& name, const Report& report) {
  if (!Knows(name)) {
    if (std::binary_search(wanted_.begin(), wanted_.end(), name)) here_.insert(name);
    return ChangeToDeclared();
  }
  NoteLife(name, report.incarnation);
  Presence& presence = presence_[name];
  if (presence.report.incarnation != report.incarnation) presence.since = now;
  presence.report = report;
  presence.gone_since.reset();
  if (const auto member = members_.find(name);
      member != members_.end() && !IsWhole(name) && report.copied == epoch_) {
    member->second = {report.incarnation, false};
    changed_ = true;
    events_.push_back({epoch_, std::nullopt, name});
  }
  if (const auto comes = other_.find(name); comes != other_.end() && phase() == RingPhase::kBoth &&
                                            report.filled == configuration_id_ &&
                                            comes->second.whole != report.incarnation) {
    comes->second = {report.incarnation, false};
    changed_ = true;
  }
  OnTime(now);
}

void CacheMembers::OnGone(MonotonicTime now, const std::string& name) {
  here_.erase(name);
  if (!Knows(name)) return;
  presence_[name] = {.report = {}, .since = now, .gone_since = now};
  OnTime(now);
}

void CacheMembers::OnWritten(cache::ConfigurationId configuration) {
  if (std::exchange(durable_, configuration) != configuration) durable_since_.reset();
}

void CacheMembers::OnTime(MonotonicTime now) {
  next_ = MonotonicTime::Max();
  if (!durable_since_.has_value()) durable_since_ = now;
  for (auto& [name, presence] : presence_) {
    // The scheduler before may have heard of it until now.
    if (!IsThere(name) && !presence.gone_since.has_value()) {
      presence.gone_since = now + options_.lease;
    }
  }
  LookAtEpoch(now);
  LookAtPhase(now);
}

// Whether somebody waits to be filled from members that nobody can copy. He does without one.
bool CacheMembers::FillingIsStuck(MonotonicTime now) {
  if (phase() != RingPhase::kBoth ||
      std::none_of(other_.begin(), other_.end(), [this](const auto& member) {
        return IsThere(member.first) && !IsFilled(member.first);
      })) {
    return false;
  }
  size_t lost = 0;
  MonotonicTime next = MonotonicTime::Max();
  for (const auto& [name, member] : members_) {
    if (member.excused || IsWhole(name)) continue;
    const MonotonicTime fenced =
        IsThere(name) ? now : *presence_.at(name).gone_since + options_.stuck_after;
    lost += fenced <= now ? 1 : 0;
    if (fenced > now) next = std::min(next, fenced);
  }
  const bool stuck = lost >= std::min<size_t>(members_.size(), 2);
  if (!stuck) next_ = std::min(next_, next);
  return stuck;
}

std::optional<CacheMembers::Event> CacheMembers::FindLoss(MonotonicTime now) {
  // Those that are not whole, are there, and so want to be.
  std::vector<std::string> waiting;
  for (const auto& [name, member] : members_) {
    if (IsThere(name) && !IsWhole(name)) waiting.push_back(name);
  }
  const bool filling = FillingIsStuck(now);
  if (waiting.empty() && !filling) return std::nullopt;
  std::optional<Event> raise;
  for (const auto& [name, member] : members_) {
    if (member.excused || IsWhole(name)) continue;
    // Somebody needs it, and it has nothing to give, or can't be asked. The only replica of a ring
    // can copy from nobody what it had.
    const bool needed = members_.size() == 1 || filling ||
                        std::any_of(waiting.begin(), waiting.end(),
                                    [&](const std::string& other) { return other != name; });
    if (!needed) continue;
    if (IsThere(name)) {
      // One that is excused waits for it only until it is whole, and it does not wait for that one.
      if (!raise && (members_.size() == 1 ||
                     std::any_of(waiting.begin(), waiting.end(), [&](const std::string& other) {
                       return other != name && !members_.at(other).excused;
                     }))) {
        raise = {epoch_, RaiseCause::kStartedAnew, name};
      }
      continue;
    }
    const MonotonicTime fenced = *presence_.at(name).gone_since + options_.fence_after;
    if (fenced <= now) {
      if (!raise) raise = {epoch_, RaiseCause::kGone, name};
    } else {
      next_ = std::min(next_, fenced);
    }
  }
  return raise;
}

void CacheMembers::LookAtEpoch(MonotonicTime now) {
  std::optional<Event> raise = FindLoss(now);
  if (!raise) return lost_since_.reset();
  if (!lost_since_.has_value()) lost_since_ = now;
  if (const MonotonicTime due = *lost_since_ + options_.raise_after;
      now < due && members_.size() > 1) {
    next_ = std::min(next_, due);
    return;
  }
  lost_since_.reset();
  // Who is gone only for a moment may come back whole, as long as nobody was told that it is not.
  epoch_ = Successor(epoch_);
  for (auto& [name, member] : members_) {
    const bool may_come_back =
        !IsThere(name) && *presence_.at(name).gone_since + options_.fence_after > now;
    if (!IsWhole(name) && !may_come_back) member.excused = true;
  }
  changed_ = true;
  raise->epoch = epoch_;
  events_.push_back(std::move(*raise));
}

void CacheMembers::LookAtPhase(MonotonicTime now) {
  if (phase() == RingPhase::kBoth) LookAtFilling(now);
  if (phase() == RingPhase::kNew) LookAtSealing(now);
}

// Whether so many of the ring that comes are away for long that nothing is acknowledged there.
bool CacheMembers::NewRingIsGone(MonotonicTime now) {
  size_t gone = 0;
  for (const auto& [name, member] : other_) {
    if (IsThere(name) || members_.contains(name)) continue;
    const MonotonicTime given_up = *presence_.at(name).gone_since + options_.fence_after;
    if (given_up <= now) {
      ++gone;
    } else {
      next_ = std::min(next_, given_up);
    }
  }
  return gone >= std::min<size_t>(other_.size(), 2);
}

void CacheMembers::LookAtFilling(MonotonicTime now) {
  if (!both_since_.has_value()) both_since_ = now;
  const MonotonicTime deadline = *both_since_ + options_.data_fill_max;
  if (NewRingIsGone(now)) {
    TakeBack();
    return;
  }
  bool waits_for_data = false;
  for (const auto& [name, member] : other_) {
    if (!IsFilled(name)) return;
    waits_for_data |= presence_.at(name).report.data_filled != configuration_id_ && now < deadline;
  }
  if (waits_for_data) {
    next_ = std::min(next_, deadline);
    return;
  }
  std::swap(members_, other_);
  configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_), RingPhase::kNew);
  changed_ = true;
}

void CacheMembers::LookAtSealing(MonotonicTime now) {
  // Who is not heard may have learnt from the record until then that nothing has changed.
  const MonotonicTime closed =
      (durable_ == configuration_id_ ? *durable_since_ : now) + options_.lease;
  size_t readable = 0;  // by readers who do not know the new ring
  size_t given_up = 0;  // who may come back for a moment, and be read
  MonotonicTime next = MonotonicTime::Max();
  for (const auto& [name, member] : other_) {
    const Presence& presence = presence_.at(name);
    // Its former life, or it itself, may be read for a while after its end.
    const MonotonicTime unread =
        (IsThere(name) ? presence.since : std::max(*presence.gone_since, closed)) +
        options_.fence_after;
    if (IsThere(name) && presence.report.sealed < configuration_id_) {
      ++readable;
    } else if (now < unread) {
      ++readable;
      next = std::min(next, unread);
    } else if (!IsThere(name)) {
      ++given_up;
    }
  }
  // One alone is never believed.
  if (readable > (other_.size() >= 2 && given_up == 0 ? 1u : 0u)) {
    next_ = std::min(next_, next);
    return;
  }
  other_.clear();
  Forget();
  configuration_id_ = cache::IdOf(cache::ReadRing(configuration_id_), RingPhase::kSettled);
  changed_ = true;
  ChangeToDeclared();
}

void CacheMembers::Save(v1::RegistrySnapshot* snapshot) {
  snapshot->set_ring_configuration_id(Raw(configuration_id_));
  snapshot->set_cache_epoch(Raw(epoch_));
  const auto save = [this](const Members& members, auto* saved) {
    saved->Clear();
    for (const auto& [name, member] : members) {
      v1::CacheMember* one = saved->Add();
      one->set_name(name);
      one->set_whole_incarnation(Raw(member.whole));
      one->set_excused(member.excused);
      const auto lives = lives_.find(name);
      if (lives == lives_.end()) continue;
      for (const ProcessIncarnation life : lives->second) one->add_lives(Raw(life));
    }
  };
  save(members_, snapshot->mutable_cache_members());
  save(other_, snapshot->mutable_other_cache_members());
  snapshot->clear_declared_caches();
  for (const std::string& name : declared_) snapshot->add_declared_caches(name);
  changed_ = false;
}

}  // namespace tailcast::cell
