#include "tailcast/cell/cache_members.h"

#include <algorithm>
#include <set>

#include "tailcast/base/strong.h"

namespace tailcast::cell {

CacheMembers::CacheMembers(const v1::RegistrySnapshot& durable,
                           const std::vector<std::string>& names, Duration fence_after)
    : fence_after_(fence_after),
      configuration_id_{durable.ring_configuration_id()},
      epoch_{durable.cache_epoch()} {
  std::map<std::string, Member> known;
  for (const v1::CacheMember& member : durable.cache_members()) {
    known[member.name()] = {ProcessIncarnation{member.whole_incarnation()}, member.excused()};
  }
  const std::set<std::string> wanted(names.begin(), names.end());
  const bool same = Raw(configuration_id_) != 0 && known.size() == wanted.size() &&
                    std::all_of(wanted.begin(), wanted.end(),
                                [&](const std::string& name) { return known.contains(name); });
  for (const std::string& name : wanted) {
    members_[name] = known[name];
    presence_[name] = {};
  }
  if (same) return;
  // Keys have other owners now.
  configuration_id_ = Successor(configuration_id_);
  epoch_ = Successor(epoch_);
  for (auto& [name, member] : members_) member.excused = true;
  changed_ = true;
}

bool CacheMembers::IsThere(const std::string& name) const {
  return presence_.at(name).incarnation != ProcessIncarnation::kNone;
}

bool CacheMembers::IsWhole(const std::string& name) const {
  const Member& member = members_.at(name);
  return IsThere(name) && !member.excused && presence_.at(name).incarnation == member.whole;
}

void CacheMembers::OnRegistered(MonotonicTime now, const std::string& name,
                                ProcessIncarnation incarnation, cache::CacheEpoch copied) {
  const auto found = members_.find(name);
  if (found == members_.end()) return;
  presence_[name] = {incarnation, std::nullopt};
  Member& member = found->second;
  if (!IsWhole(name) && copied == epoch_) {
    member = {incarnation, false};
    changed_ = true;
  }
  OnTime(now);
}

void CacheMembers::OnGone(MonotonicTime now, const std::string& name) {
  if (!members_.contains(name)) return;
  presence_[name] = {ProcessIncarnation::kNone, now};
  OnTime(now);
}

void CacheMembers::OnTime(MonotonicTime now) {
  next_ = MonotonicTime::Max();
  // Those that are not whole, are there, and so want to be.
  std::vector<std::string> waiting;
  for (auto& [name, presence] : presence_) {
    if (!IsThere(name) && !presence.since.has_value()) presence.since = now;
    if (IsThere(name) && !IsWhole(name)) waiting.push_back(name);
  }
  if (waiting.empty()) return;
  bool lost = false;
  for (const auto& [name, member] : members_) {
    if (member.excused || IsWhole(name)) continue;
    // Somebody needs it, and it has nothing to give, or can't be asked. The only replica of a ring
    // can copy from nobody what it had.
    const bool needed = members_.size() == 1 ||
                        std::any_of(waiting.begin(), waiting.end(),
                                    [&](const std::string& other) { return other != name; });
    if (!needed) continue;
    if (IsThere(name)) {
      // One that is excused waits for it only until it is whole, and it does not wait for that one.
      lost = lost || members_.size() == 1 ||
             std::any_of(waiting.begin(), waiting.end(), [&](const std::string& other) {
               return other != name && !members_.at(other).excused;
             });
      continue;
    }
    const MonotonicTime fenced = *presence_.at(name).since + fence_after_;
    if (fenced <= now) {
      lost = true;
    } else {
      next_ = std::min(next_, fenced);
    }
  }
  if (!lost) return;
  // Who is gone only for a moment may come back whole, as long as nobody was told that it is not.
  epoch_ = Successor(epoch_);
  for (auto& [name, member] : members_) {
    const bool may_come_back = !IsThere(name) && *presence_.at(name).since + fence_after_ > now;
    if (!IsWhole(name) && !may_come_back) member.excused = true;
  }
  changed_ = true;
}

void CacheMembers::Save(v1::RegistrySnapshot* snapshot) {
  snapshot->set_ring_configuration_id(Raw(configuration_id_));
  snapshot->set_cache_epoch(Raw(epoch_));
  snapshot->clear_cache_members();
  for (const auto& [name, member] : members_) {
    v1::CacheMember* saved = snapshot->add_cache_members();
    saved->set_name(name);
    saved->set_whole_incarnation(Raw(member.whole));
    saved->set_excused(member.excused);
  }
  changed_ = false;
}

}  // namespace tailcast::cell
