#include "tailcast/cache/repair_core.h"

#include <algorithm>

#include "tailcast/base/check.h"
#include "tailcast/cache/ring.h"

namespace tailcast::cache {

void RepairCore::Become(State state) {
  const bool fits = state == State::kIdle || state == State::kResting ||
                    (state == State::kCopying && state_ == State::kResting) ||
                    (state == State::kCopied && state_ == State::kCopying);
  TAILCAST_CHECK(fits, "a repair takes no such step");
  state_ = state;
}

void RepairCore::Member::Become(Pass next) {
  const bool fits =
      next == Pass::kAsked ? pass == Pass::kDue : next == Pass::kDue || pass == Pass::kAsked;
  TAILCAST_CHECK(fits, "a pass over a member takes no such step");
  pass = next;
}

void RepairCore::Member::Begin(MonotonicTime now) {
  Become(Pass::kDue);
  whole_all_along = whole;
  cursor = 0;
  put_off = 0;
  not_before = now;
}

void RepairCore::Member::AskAgain(MonotonicTime when) {
  Become(Pass::kDue);
  not_before = when;
}

void RepairCore::OnRing(MonotonicTime now, const RingConfig& ring) {
  const Replica* const self = ring.Find(name_);
  const RingPhase phase = PhaseOf(ring.configuration_id);
  const bool named = self != nullptr;
  const bool comes = named && self->in_other && phase == RingPhase::kBoth;
  if (!named || (!self->in_ring && !comes)) {
    // Its members are none of ours.
    members_.clear();
    fills_ = ConfigurationId{};
    has_own_ = was_whole_ = is_whole_ = in_ring_ = false;
    return Become(State::kIdle);
  }
  // Who follows a change step by step is filled before the ring is read that it brings.
  const bool followed =
      phase != RingPhase::kSettled || PhaseOf(configuration_id_) != RingPhase::kSettled;
  const ConfigurationId fills = comes ? ring.configuration_id : ConfigurationId{};
  const bool new_fill = comes && fills != fills_;
  fills_ = fills;
  configuration_id_ = ring.configuration_id;
  epoch_ = ring.epoch;
  in_ring_ = self->in_ring;

  std::vector<Member> members;
  bool same_names = true;
  for (const Replica& replica : ring.replicas) {
    if (replica.name == name_ || !replica.in_ring) continue;
    Member member;
    const auto known = std::find_if(members_.begin(), members_.end(),
                                    [&](const Member& m) { return m.name == replica.name; });
    if (known != members_.end()) member = *known;
    same_names = same_names && known != members_.end();
    const bool there = !replica.rpc_address.empty();
    const ProcessIncarnation incarnation = there ? replica.incarnation : ProcessIncarnation::kNone;
    // Of another life, or since it is whole: what it had before may have been too little.
    const bool other_life = incarnation != member.incarnation;
    const bool whole_now = replica.whole && !member.whole && state_ != State::kCopied;
    member.name = replica.name;
    member.incarnation = incarnation;
    member.whole = replica.whole;
    member.excused = replica.excused;
    if (known == members_.end() && followed && state_ == State::kCopied) {
      member.pass = Pass::kVisited;  // from its beginning on: it comes with nothing to copy
    } else if ((other_life || whole_now) && member.pass != Pass::kCounted) {
      member.Begin(now);
    }
    member.whole_all_along = member.whole_all_along && member.whole;
    members.push_back(std::move(member));
  }
  same_names = same_names && members.size() == members_.size();
  members_ = std::move(members);
  std::sort(members_.begin(), members_.end(),
            [](const Member& a, const Member& b) { return a.name < b.name; });

  // An earlier incarnation may have served until now.
  const bool known_now = !known_ && self->incarnation == incarnation_;
  known_ = known_ || known_now;
  if (known_now && self->rests) empty_since_ = now;

  // One whose lease ran out is not shown, but is what it was when it is back in time.
  const bool shown = self->incarnation != ProcessIncarnation::kNone || self->excused;
  is_whole_ = self->in_ring && self->whole && self->incarnation == incarnation_;
  const bool lost = was_whole_ && shown && !is_whole_;
  was_whole_ = is_whole_ || (was_whole_ && !shown);
  if (lost) empty_since_ = now;  // what was acknowledged by us until now may be counted on
  const bool anew = state_ == State::kIdle || (!same_names && !followed);
  // Chunks aren't waited for as long as it takes: the ring may be read before they are here.
  const bool unfilled = phase == RingPhase::kNew && state_ != State::kCopied;
  if (anew || lost || unfilled) has_own_ = false;
  if (anew || lost || new_fill || (known_now && self->rests)) {
    // One of three owners may have missed what the two others acknowledged. It may go on so as one
    // of three; but of fewer each has to know all.
    gained_only_ = comes && is_whole_ && has_own_ &&
                   std::count_if(ring.replicas.begin(), ring.replicas.end(),
                                 [](const Replica& r) { return r.in_other; }) >= kReplicasPerKey;
    // In the ring that comes everybody votes, whole or not, so an earlier incarnation of ours may
    // have.
    StartOver(now, self->rests || lost || comes);
  }
  Look(now);
}

void RepairCore::StartOver(MonotonicTime now, bool rests) {
  Become(State::kResting);
  turn_ = 0;
  rested_at_ = rests ? std::max(now, empty_since_ + options_.rest) : now;
  for (Member& member : members_) member.Begin(now);
}

void RepairCore::Look(MonotonicTime now) {
  if (state_ == State::kResting && rested_at_ <= now) Become(State::kCopying);
  if (state_ != State::kCopying) return;
  const auto missing = std::count_if(members_.begin(), members_.end(),
                                     [](const Member& member) { return !member.enough(); });
  const auto not_copied = std::count_if(members_.begin(), members_.end(), [](const Member& member) {
    return member.pass != Pass::kCounted;
  });
  // Without a quorum's two nothing is acknowledged in a ring of two.
  const size_t ring_size = members_.size() + (in_ring_ ? 1 : 0);
  // Of chunks those who are there give also what one who is away would.
  const bool all_there_copied =
      !options_.once || std::all_of(members_.begin(), members_.end(), [](const Member& member) {
        return member.pass == Pass::kCounted || !member.there();
      });
  const bool filled = fills_ != ConfigurationId{} && (is_whole_ || !in_ring_) && ring_size >= 2 &&
                      not_copied <= 1 && all_there_copied;
  if (missing > 0 && !filled) return;
  has_own_ = missing == 0 || !options_.once;
  Become(State::kCopied);
}

std::vector<RepairCore::Ask> RepairCore::TakeDue(MonotonicTime now) {
  Look(now);
  std::vector<Ask> asks;
  if (state_ != State::kCopying && state_ != State::kCopied) return asks;
  const size_t first = turn_;
  for (size_t i = 0; i < members_.size() && next_page_ <= now; ++i) {
    const size_t at = (first + i) % members_.size();
    Member& member = members_[at];
    if (!Wanted(member) || member.not_before > now) continue;
    turn_ = at + 1;
    next_page_ = std::max(next_page_, now) + TimeOf(options_.page_bytes);
    member.Become(Pass::kAsked);
    member.ask = next_ask_++;
    asks.push_back({member.ask, member.name, member.incarnation, member.cursor,
                    gained_only_ ? fills_ : ConfigurationId{}});
  }
  return asks;
}

MonotonicTime RepairCore::next() const {
  if (state_ == State::kResting) return rested_at_;
  MonotonicTime next = MonotonicTime::Max();
  if (state_ == State::kIdle) return next;
  for (const Member& member : members_) {
    if (Wanted(member)) next = std::min(next, std::max(member.not_before, next_page_));
  }
  return next;
}

Duration RepairCore::TimeOf(uint64_t bytes) const {
  return Duration::Micros(
      static_cast<int64_t>(bytes * 1000000 / std::max<uint64_t>(options_.bytes_per_second, 1)));
}

RepairCore::Member* RepairCore::Find(uint64_t ask) {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.pass == Pass::kAsked && member.ask == ask;
  });
  return found == members_.end() ? nullptr : &*found;
}

bool RepairCore::OnPage(MonotonicTime now, uint64_t id, const Page& page) {
  Member* const member = Find(id);
  if (member == nullptr) return false;
  const bool last = page.next_cursor == 0;
  if (!last && page.next_cursor <= member->cursor) {
    OnFailure(now, id);  // it would never end
    return true;
  }
  // All members share the rate. What was taken for the page is made up for.
  next_page_ = std::max(next_page_, now - TimeOf(options_.page_bytes)) + TimeOf(page.bytes) -
               TimeOf(options_.page_bytes);
  if (page.configuration_id < configuration_id_) {
    member->Begin(now + options_.retry);
    return true;
  }
  if (!page.kept && !(options_.once && ++member->put_off >= kPutOffMax)) {
    member->AskAgain(now + options_.retry);
    return true;
  }
  member->put_off = 0;
  member->cursor = page.next_cursor;
  member->Become(!last ? Pass::kDue : member->whole_all_along ? Pass::kCounted : Pass::kVisited);
  Look(now);
  return true;
}

void RepairCore::OnFailure(MonotonicTime now, uint64_t id) {
  Member* const member = Find(id);
  if (member == nullptr) return;
  next_page_ = next_page_ - TimeOf(options_.page_bytes);
  member->AskAgain(now + options_.retry);
}

std::vector<std::string> RepairCore::Missing() const {
  std::vector<std::string> missing;
  if (state_ != State::kCopying) return missing;
  for (const Member& member : members_) {
    if (!member.enough()) missing.push_back(member.name);
  }
  return missing;
}

}  // namespace tailcast::cache
