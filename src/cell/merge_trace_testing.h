// What happens to one key of the cache, as a trace of spec Merge: the events of MergeTrace.tla,
// which says what each means. For tests: CacheMembersSweep and others that have the registry and
// all replicas in one thread tell it each step when it was taken.
//
// All replicas of a ring must own the key, so rings have three. Replicas are numbers from 0 here
// and from 1 in the trace. A replica's new life begins in the trace when it does something that
// others may see: until then nobody can tell it from the dead one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/strong.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/quorum_core.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/registry.pb.h"

namespace tailcast::cell {

class MergeTrace {
 public:
  static constexpr size_t kReplicasMax = 8;

  // A trace of a change from the ring `from` to `to`, or of no change, if they are the same. Traces
  // of the same rings may follow each other.
  MergeTrace(std::vector<int> from, std::vector<int> to)
      : from_(std::move(from)), to_(std::move(to)) {}
  const std::vector<int>& from() const { return from_; }
  const std::vector<int>& to() const { return to_; }
  const std::string& text() const { return text_; }

  // All of `from` are whole, and nobody has written the key.
  void Begin(const v1::RegistrySnapshot& durable) {
    replicas_ = {};
    first_epoch_ = durable.cache_epoch();
    old_ring_ = cache::ReadRing(cache::ConfigurationId{durable.ring_configuration_id()});
    phase_new_ = read_ = write_ = false;
    on_ = true;
    Add("Begin", {{"old", List(from_)}, {"new", List(to_)}});
  }
  void End() { on_ = false; }

  // ---- Replicas.
  // It has started again, empty.
  void OnStart(int i) {
    if (!Follows(i)) return;
    replicas_[i].unborn = true;
    replicas_[i].unread = false;
  }
  // It is about to do something that others see.
  void OnAction(int i) {
    if (!Follows(i) || !replicas_[i].unborn) return;
    const bool unread = replicas_[i].unread;
    replicas_[i] = {};
    replicas_[i].ghost = true;
    Add("Restart", {{"r", Number(i)}});
    if (unread) OnGhostEnds(i);
  }
  // Nobody reads the memory of its former life any more.
  void OnGhostEnds(int i) {
    if (!Follows(i)) return;
    Replica& r = replicas_[i];
    if (r.unborn) {
      r.unread = true;
    } else if (std::exchange(r.ghost, false)) {
      Add("GhostEnds", {{"r", Number(i)}});
    }
  }
  void OnRing(int i, cache::ConfigurationId id) {
    if (!Follows(i)) return;
    OnAction(i);
    if (std::exchange(replicas_[i].ring, id) == id) return;
    Add("Renew", {{"r", Number(i)}, {"phase", Text(PhaseOf(id))}});
  }
  void OnSealed(int i, cache::ConfigurationId id) {
    if (!on_ || !InOld(i) || cache::ReadRing(id) <= old_ring_) return;
    OnAction(i);
    if (std::exchange(replicas_[i].sealed, true)) return;
    Add("Invalidate", {{"r", Number(i)}});
  }
  void OnRested(int i) {
    if (!Follows(i)) return;
    OnAction(i);
    Add("Rest", {{"r", Number(i)}});
  }
  // `reader` took what `source` has, whether the pass counts or not.
  void OnCopy(int reader, int source, uint64_t value) {
    if (!on_) return;
    OnAction(reader);
    Add("Copy", {{"r", Number(reader)}, {"q", Number(source)}, {"len", std::to_string(value)}});
  }

  // ---- The registry.
  // Before it looks at the time: `there` tells whose lease runs.
  void OnLook(MonotonicTime now, Duration fence_after,
              const std::array<bool, kReplicasMax>& there) {
    if (!on_) return;
    for (const int i : from_) {
      Replica& r = replicas_[i];
      if (there[i]) {
        r.gone_since = MonotonicTime::Max();
      } else if (r.gone_since == MonotonicTime::Max()) {
        r.gone_since = now;
      } else if (now - r.gone_since >= fence_after && phase_new_ && !r.sealed) {
        r.sealed = true;
        Add("Lapse", {{"r", Number(i)}});
      }
    }
  }
  // `after` has become durable.
  void OnDurable(const v1::RegistrySnapshot& before, const v1::RegistrySnapshot& after) {
    if (!on_) return;
    const cache::ConfigurationId was{before.ring_configuration_id()};
    const cache::ConfigurationId is{after.ring_configuration_id()};
    const int from = StepOf(was);
    const bool back = from == 1 && SameNames(before, after) && StepOf(is) == 3;
    const int to = back ? 0 : StepOf(is);
    Admitted("O", OldOf(before, from), OldOf(after, to), false);
    Admitted("N", NewOf(before, from), NewOf(after, to), from <= 1);
    if (before.cache_epoch() != after.cache_epoch()) {
      OnReadGivenUp();
      std::vector<int> excused;
      for (const v1::CacheMember& member : from < 2 ? OldOf(after, to) : NewOf(after, to)) {
        if (member.excused()) excused.push_back(IndexOf(member.name()));
      }
      Add("RaiseEpoch", {{"excused", List(excused)}});
    }
    if (back) {
      old_ring_ = cache::ReadRing(is);
      Add("MoveBack", {});
    }
    static constexpr std::array<std::string_view, 4> kMoves = {"", "MoveBoth", "MoveNew",
                                                               "MoveDrained"};
    for (int step = from + 1; step <= to; ++step) Add(kMoves[step], {});
    phase_new_ = to == 2;
  }

  // ---- Clients.
  struct Votes {
    cache::MutationCore::Rings in, counted;
  };
  // The write reached replica i, which has `has` then. `acknowledged`: this made its quorum, and
  // the epoch is still that of the write.
  void OnWritten(int i, cache::ConfigurationId id, cache::CacheEpoch epoch, uint64_t value,
                 Votes votes, bool acknowledged, uint64_t has) {
    if (!on_) return;
    const bool reads_old = cache::ReadRing(id) <= old_ring_;
    std::string rings;
    const auto count = [&](bool vote, bool old) {
      if (vote) rings += std::string(rings.empty() ? "" : ",") + (old ? "\"O\"" : "\"N\"");
    };
    count(votes.in.read && votes.counted.read, reads_old);
    count(votes.in.other && votes.counted.other, !reads_old);
    const std::string r = Number(i), counted = "[" + rings + "]", len = std::to_string(has),
                      acked = acknowledged ? "true" : "false";
    if (!write_) {
      const bool settled = cache::PhaseOf(id) == cache::RingPhase::kSettled;
      const std::string_view conf = !settled ? "both" : reads_old ? "old" : "drained";
      Add("WriteBegin", {{"r", r},
                         {"conf", Text(conf)},
                         {"epoch", std::to_string(static_cast<int64_t>(Raw(epoch) - first_epoch_))},
                         {"value", std::to_string(value)},
                         {"votes", counted},
                         {"acked", acked},
                         {"len", len}});
    } else {
      Add("WriteDeliver", {{"r", r}, {"votes", counted}, {"acked", acked}, {"len", len}});
    }
    write_ = !acknowledged;
  }
  // It is given up, or begins again.
  void OnWriteGivenUp() {
    if (on_ && std::exchange(write_, false)) Add("WriteEnd", {});
  }
  // An answer that counts. `ghost`: of the memory that a former life left.
  void OnAnswer(int i, bool ghost, cache::ConfigurationId id, uint64_t value, bool complete) {
    if (!on_) return;
    Add(ghost && replicas_[i].ghost && !replicas_[i].unborn ? "ReadGhost" : "Read",
        {{"r", Number(i)},
         {"ring", Text(cache::ReadRing(id) <= old_ring_ ? "O" : "N")},
         {"len", std::to_string(value)},
         {"complete", complete ? "true" : "false"}});
    read_ = !complete;
  }
  void OnReadGivenUp() {
    if (on_ && std::exchange(read_, false)) Add("ReadGiveUp", {});
  }

 private:
  using Field = std::pair<std::string_view, std::string>;
  using Saved = std::vector<v1::CacheMember>;
  struct Replica {
    bool unborn = false;  // its new life has done nothing yet
    bool unread = false;  // then: its former life's memory is not read any more
    bool ghost = false;
    bool sealed = false;
    cache::ConfigurationId ring{};
    MonotonicTime gone_since = MonotonicTime::Max();
  };

  static int IndexOf(const std::string& name) { return name[0] - 'a'; }
  static std::string Number(int i) { return std::to_string(i + 1); }
  static std::string Text(std::string_view text) { return "\"" + std::string(text) + "\""; }
  static std::string List(const std::vector<int>& replicas) {
    std::string text;
    for (const int i : replicas) text += (text.empty() ? "" : ",") + Number(i);
    return "[" + text + "]";
  }
  void Add(std::string_view event, std::initializer_list<Field> fields) {
    text_ += "{\"event\":" + Text(event);
    for (const Field& field : fields) text_ += "," + Text(field.first) + ":" + field.second;
    text_ += "}\n";
  }

  // 0 to 3: old, both, new, drained.
  int StepOf(cache::ConfigurationId id) const {
    switch (cache::PhaseOf(id)) {
      case cache::RingPhase::kBoth:
        return 1;
      case cache::RingPhase::kNew:
        return 2;
      default:
        return cache::ReadRing(id) <= old_ring_ ? 0 : 3;
    }
  }
  std::string_view PhaseOf(cache::ConfigurationId id) const {
    static constexpr std::array<std::string_view, 4> kPhases = {"old", "both", "new", "drained"};
    return kPhases[StepOf(id)];
  }
  static Saved OldOf(const v1::RegistrySnapshot& snapshot, int step) {
    if (step == 3) return {};
    const auto& members = step == 2 ? snapshot.other_cache_members() : snapshot.cache_members();
    return {members.begin(), members.end()};
  }
  static Saved NewOf(const v1::RegistrySnapshot& snapshot, int step) {
    if (step == 0) return {};
    const auto& members = step == 1 ? snapshot.other_cache_members() : snapshot.cache_members();
    return {members.begin(), members.end()};
  }
  static bool SameNames(const v1::RegistrySnapshot& a, const v1::RegistrySnapshot& b) {
    return std::equal(
        a.cache_members().begin(), a.cache_members().end(), b.cache_members().begin(),
        b.cache_members().end(),
        [](const v1::CacheMember& x, const v1::CacheMember& y) { return x.name() == y.name(); });
  }
  bool Follows(int i) const {
    return on_ && (InOld(i) || std::find(to_.begin(), to_.end(), i) != to_.end());
  }
  bool InOld(int i) const { return std::find(from_.begin(), from_.end(), i) != from_.end(); }
  void Admitted(std::string_view ring, const Saved& before, const Saved& after, bool comes) {
    for (const v1::CacheMember& member : after) {
      const auto known = std::find_if(before.begin(), before.end(), [&](const v1::CacheMember& m) {
        return m.name() == member.name();
      });
      const bool was = known != before.end() && !known->excused() &&
                       known->whole_incarnation() == member.whole_incarnation();
      const int i = IndexOf(member.name());
      if (was || member.excused() || member.whole_incarnation() == 0) continue;
      // Who is in both rings is whole for both, or for none.
      if (comes && InOld(i)) continue;
      Add("BecomeWhole", {{"r", Number(i)}, {"ring", Text(ring)}});
    }
  }

  const std::vector<int> from_, to_;
  std::string text_;
  bool on_ = false;
  std::array<Replica, kReplicasMax> replicas_;
  uint64_t first_epoch_ = 0, old_ring_ = 0;
  bool phase_new_ = false;
  bool read_ = false, write_ = false;  // under way, as far as the model knows
};

}  // namespace tailcast::cell
