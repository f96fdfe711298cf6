// Which cache replicas of a cell are whole: those whose answers and votes count (spec Merge). The
// registry says so, by incarnation, durably before anybody acts on it; so a replica that started
// anew is not whole until it was admitted, whatever it, its readers or its writers believe.
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
// A new ring (other names) is a new configuration, and an epoch in which all members are excused.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/types.h"
#include "tailcast/proto/registry.pb.h"

namespace tailcast::cell {

class CacheMembers {
 public:
  struct Member {
    ProcessIncarnation whole = ProcessIncarnation::kNone;  // admitted last; kNone: never one
    bool excused = false;
    bool operator==(const Member&) const = default;
  };

  // `names`: what the cell's configuration declares. `fence_after`: how long a member may be gone
  // before another one that needs it stops waiting; longer than a restart takes.
  CacheMembers(const v1::RegistrySnapshot& durable, const std::vector<std::string>& names,
               Duration fence_after);

  // A member is there (again), or renews its lease. `copied`: the epoch for which this incarnation
  // has rested and copied; 0: it has not.
  void OnRegistered(MonotonicTime now, const std::string& name, ProcessIncarnation incarnation,
                    cache::CacheEpoch copied);
  void OnGone(MonotonicTime now, const std::string& name);
  // When OnTime is due next; Max: when something happens.
  MonotonicTime NextTime() const { return next_; }
  void OnTime(MonotonicTime now);

  cache::ConfigurationId configuration_id() const { return configuration_id_; }
  cache::CacheEpoch epoch() const { return epoch_; }
  const std::map<std::string, Member>& members() const { return members_; }

  // Whether anything that Save writes has changed since it was called last.
  bool changed() const { return changed_; }
  void Save(v1::RegistrySnapshot* snapshot);

 private:
  struct Presence {
    ProcessIncarnation incarnation = ProcessIncarnation::kNone;  // kNone: gone
    std::optional<MonotonicTime> since;                          // gone since
  };
  bool IsThere(const std::string& name) const;
  bool IsWhole(const std::string& name) const;

  const Duration fence_after_;
  cache::ConfigurationId configuration_id_{};
  cache::CacheEpoch epoch_{};
  std::map<std::string, Member> members_;
  std::map<std::string, Presence> presence_;
  MonotonicTime next_ = MonotonicTime::Max();
  bool changed_ = false;
};

}  // namespace tailcast::cell
