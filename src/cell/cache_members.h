// Which cache replicas make up a cell's ring, which of them are whole (those whose answers and
// votes count), and how far a change of the ring is (spec Merge). The registry says so, by
// incarnation, durably before anybody acts on it; so a replica that started anew is not whole until
// it was admitted, whatever it, its readers or its writers believe.
//
//   one member        admitted         started anew, was told to copy         admitted
//   of the ring  ───▶ whole ─────────▶ not whole ───────────────────────────▶ whole
//                       │ gone for longer than `fence_after` while another one waits for it
//                       ▼
//                     excused: nobody has to copy from it before it was whole again
//
// A replica asks to be admitted (OnRegistered: `copied`) once it has rested and has copied from
// each other member that is not excused (cache/repair_core.h). Two that are not whole would wait
// for each other for ever: what they had acknowledged together is lost. Then the epoch rises
// (Merge: RaiseEpoch), both are excused, and owners of lengths, seals and locks have to publish
// them again. The same is done for one that is gone and that another one needs.
//
//   the ring           ChangeTo              all of the new ring are          those of the old one are
//                                            filled from the old one          sealed, or are given up
//   kSettled(k) ─────────────────▶ kBoth(k) ──────────────────────▶ kNew(k) ─────────────▶ kSettled(k+1)
//                                   │ Cancel
//                                   └─────▶ kSettled(k+1), of the same replicas
//
// Of several processes of one name the one that registered last has it, and no earlier one ever
// again (IsReplaced): it may hold what it once copied, was stopped since and missed what its
// successor acknowledged.
//
// Writes reach both rings while there are two, the old one is read in kBoth and the new one in
// kNew; so every step may be taken at any time by whoever hears of it, and a change goes on under
// the next scheduler where it was. "Sealed" is a replica whose values say that another ring is read
// now: a reader that has not heard of it finds out (Merge: Invalidate). If nobody was given up, one
// replica that is not sealed may be left, as one alone is never believed. Given up is who is gone
// so long after kNew became durable that it has closed its memory, if it lives: it hears nothing
// from the scheduler, and the record does not say any more what it knows.
//
// The ring is made of the names that the cell's configuration declares when there is none, and is
// changed to them when they have changed since and those that come are there; otherwise ChangeTo
// alone decides. A change is taken back by itself when two of those that come are gone for long, as
// nothing can be acknowledged then.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/registry.pb.h"

namespace tailcast::cell {

struct CacheMembersOptions {
  // Of a replica. One that is alive serves for so long after it was heard, or after the registry's
  // record was last as it knows it (cache_lease.h).
  Duration lease = Duration::Millis(1500);
  // How long a member may be gone, which it is when its lease has passed, before others go on
  // without it; longer than a restart takes, than readers trust a heart that stands still (2 s),
  // and than a server goes on that did not run.
  Duration fence_after = Duration::Seconds(2);
  // How long others that have lost what they had may show up before the epoch rises, so that it
  // rises once when all begin anew. Of these nobody waits longer for it, as it is less than they
  // rest. If one is gone it comes on top: the epoch rises 4 s after it was heard last (lease,
  // fence_after and this), when one that began anew then has long rested, for 2.5 s.
  Duration raise_after = Duration::Millis(500);
  // How long a change waits for chunks to be copied; those that were written before have expired
  // then.
  Duration data_fill_max = Duration::Seconds(60);
  // How long two members of the old ring may be gone before nothing is kept of what they had, so
  // that who comes can be filled without them.
  Duration stuck_after = Duration::Seconds(60);
};

class CacheMembers {
 public:
  struct Member {
    // Admitted last; in the ring that comes, filled last. kNone: never one.
    ProcessIncarnation whole = ProcessIncarnation::kNone;
    bool excused = false;
    bool operator==(const Member&) const = default;
  };
  using Members = std::map<std::string, Member>;

  // `declared`: the names that the cell's configuration gives.
  CacheMembers(const v1::RegistrySnapshot& durable, const std::vector<std::string>& declared,
               CacheMembersOptions options);

  // What a replica says of itself (proto/cell.proto, ProcessInfo).
  struct Report {
    ProcessIncarnation incarnation = ProcessIncarnation::kNone;
    cache::CacheEpoch copied{};
    cache::ConfigurationId filled{}, data_filled{}, sealed{};
  };
  // Another process has taken its name: nothing that it says is to be heard. Nor is one that has
  // copied something already, of which nobody knows while others of its name are known: it is from
  // before they came, or before the registry was restored, and begins anew as another process.
  bool IsReplaced(const std::string& name, ProcessIncarnation incarnation, bool has_copied) const;
  // It is there (again), or renews its lease. Not of one that was replaced.
  void OnRegistered(MonotonicTime now, const std::string& name, const Report& report);
  void OnGone(MonotonicTime now, const std::string& name);
  // When OnTime is due next; Max: when something happens.
  MonotonicTime NextTime() const { return next_; }
  void OnTime(MonotonicTime now);

  // Begins to change the ring to these replicas. Who comes has to be there (the caller sees to it):
  // writes need two of them at once. Ok: it has begun, or there is nothing to change.
  //   InvalidArgument: no names, or bad ones. FailedPrecondition: it is changing already, to others;
  //   or it is one of memcached servers, which the configuration alone names.
  Status ChangeTo(const std::vector<std::string>& names);
  // Takes the change back. FailedPrecondition: there is none, or the new ring is read already.
  Status Cancel();

  cache::ConfigurationId configuration_id() const { return configuration_id_; }
  cache::RingPhase phase() const { return cache::PhaseOf(configuration_id_); }
  cache::CacheEpoch epoch() const { return epoch_; }
  // Of the ring that is read, and of the one that comes (kBoth) or goes (kNew).
  const Members& members() const { return members_; }
  const Members& other() const { return other_; }
  bool Knows(const std::string& name) const {
    return members_.contains(name) || other_.contains(name);
  }

  // What was decided, for logs and metrics.
  enum class RaiseCause : uint8_t {
    kRing,         // the declared replicas are others than before
    kStartedAnew,  // one that another one needs is there, without what it had acknowledged
    kGone,         // one that another one needs is gone for longer than fence_after
  };
  struct Event {
    cache::CacheEpoch epoch{};         // that was raised to, or admitted in
    std::optional<RaiseCause> raised;  // nullopt: `member` was admitted
    std::string member;                // who was admitted, or for whose sake the epoch rose
  };
  // Since the last call, in order.
  std::vector<Event> TakeEvents() { return std::exchange(events_, {}); }

  // Whether anything that Save writes has changed since it was called last.
  bool changed() const { return changed_; }
  // What Save wrote of this configuration became durable. A phase acts on that.
  void OnWritten(cache::ConfigurationId configuration);
  void Save(v1::RegistrySnapshot* snapshot);

 private:
  struct Presence {
    Report report;                            // incarnation kNone: gone
    MonotonicTime since;                      // of this incarnation
    std::optional<MonotonicTime> gone_since;  // if it is gone
  };
  void NoteLife(const std::string& name, ProcessIncarnation incarnation);
  void Forget();
  bool IsThere(const std::string& name) const;
  bool IsWhole(const std::string& name) const;
  bool IsFilled(const std::string& name) const;
  void MakeRing(const std::vector<std::string>& names);
  void BeginChange(const std::vector<std::string>& names);
  void ChangeToDeclared();
  void TakeBack();
  bool FillingIsStuck(MonotonicTime now);
  void LookAtEpoch(MonotonicTime now);
  // Why the epoch has to rise, if it has to; of which one.
  std::optional<Event> FindLoss(MonotonicTime now);
  void LookAtPhase(MonotonicTime now);
  bool NewRingIsGone(MonotonicTime now);
  void LookAtFilling(MonotonicTime now);
  void LookAtSealing(MonotonicTime now);

  const CacheMembersOptions options_;
  const std::vector<std::string> wanted_;  // that the configuration declares, sorted
  std::vector<std::string> declared_;      // the same, when a ring was last made of it
  cache::ConfigurationId configuration_id_{};
  cache::CacheEpoch epoch_{};
  Members members_, other_;
  std::map<std::string, Presence> presence_;  // of all of them
  // Of those of them that were ever there; the last one is, or was last.
  std::map<std::string, std::vector<ProcessIncarnation>> lives_;
  std::set<std::string> here_;                  // that are wanted, and in no ring
  std::optional<MonotonicTime> lost_since_;     // since when the epoch has to rise
  std::optional<MonotonicTime> both_since_;     // as this scheduler knows
  cache::ConfigurationId durable_{};            // of the record
  std::optional<MonotonicTime> durable_since_;  // it is surely durable
  MonotonicTime next_ = MonotonicTime::Max();
  bool changed_ = false;
  std::vector<Event> events_;
};

}  // namespace tailcast::cell
