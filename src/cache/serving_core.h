// Whether a cache server may be read and written now. It may while the ring that it knows names
// this very life of it, and the registry has confirmed it within its lease: who is not heard of may
// have been given up, and then others acknowledge what it does not see.
//
//   named ◀───────▶ not named                             what the ring says
//     │  ▲
//     ▼  │ a ring names this life again
//   replaced: a ring names another life, and one has named this one
//
//   sure ─────────▶ doubtful     it stalled, or its lease has ended
//        ◀─────────              it is confirmed, and knows the ring and the epoch of the registry
//
// It serves while it is named and sure (beyond the paper; spec Merge).
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/ring.h"

namespace tailcast::cache {

// The registry's word on a server.
struct Confirmation {
  MonotonicTime asked;                    // when it was asked for
  Duration lease = Duration::Infinite();  // from then on; nobody goes on without this server before
  ConfigurationId configuration{};        // that the registry has, and its epoch
  CacheEpoch epoch{};
  // Not of the scheduler, which has heard of this server, but of the record that the cell's
  // primary layer has: says something only if this server knows of no other ring and epoch.
  bool by_record = false;
  bool other_life = false;  // and it names another life of it, or none: no confirmation
};

class ServingCore {
 public:
  enum class State : uint8_t { kServes, kReplaced, kNotInRing, kStalled, kNoLease };

  // `stall_max`: who did not run for longer than that may have been given up meanwhile.
  ServingCore(std::string name, ProcessIncarnation incarnation, Duration stall_max)
      : name_(std::move(name)), incarnation_(incarnation), stall_max_(stall_max) {}

  // The newest ring that it knows. As OnConfirmation.
  bool OnRing(MonotonicTime now, const RingConfig& ring);
  // It runs. How long it had not, if that makes it doubtful.
  std::optional<Duration> OnTick(MonotonicTime now);
  // `ring`: the one that it knows. True: it was doubtful, and is sure now.
  bool OnConfirmation(MonotonicTime now, const RingConfig& ring, const Confirmation& confirmation);
  // When lease_end() has come. Others may go on without it from now on, and acknowledge what it
  // does not hear of.
  void OnLeaseEnd();
  MonotonicTime lease_end() const { return lease_end_; }  // Max: none

  bool serves() const { return named_ && !doubtful(); }
  bool named() const { return named_; }
  bool doubtful() const { return doubtful_since_.has_value(); }
  // The first reason that holds, in the order of the enum.
  State state() const;
  // Since the last renewal the registry's record said something else than is known here.
  bool record_differs() const { return record_differs_; }

 private:
  // Sure, if what the registry said holds and is known here. True: that it was not before.
  bool GoOnIfConfirmed(MonotonicTime now, const RingConfig& ring);

  const std::string name_;
  const ProcessIncarnation incarnation_;
  const Duration stall_max_;
  bool named_ = true;      // the ring names it
  bool known_ = false;     // and has named this very life
  bool replaced_ = false;  // another process has its name
  std::optional<MonotonicTime> ticked_at_;
  // It stalled until then, or its lease has ended (0), and it was not confirmed since.
  std::optional<MonotonicTime> doubtful_since_;
  // By the registry, which had what is not known here yet.
  std::optional<Confirmation> confirmed_;
  MonotonicTime lease_end_ = MonotonicTime::Max();
  bool record_differs_ = false;
};

}  // namespace tailcast::cache
