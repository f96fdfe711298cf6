// How a cache replica that is not whole becomes it (spec Merge: Rest, Copy, BecomeWhole), and how
// one is filled with what it will own in the ring that comes: whom to copy from, when, and whether
// it has copied enough to tell the registry, which decides who is whole and when the ring changes
// (cell/cache_members.h).
//
//   kIdle ──a ring that names us────────────────────────────────────────────────▶ kResting
//   kResting ──`rest` after our start; after the ring has named our incarnation, if an earlier
//              one may have served until then; at once, if none was whole──────────▶ kCopying
//   kCopying ──enough full passes over members who were whole all the time───────▶ kCopied
//   any ──we are not whole any more; a ring comes that we are in───────────────────▶ kResting
//   any ──a ring that does not name us, or that we leave─────────────────────────▶ kIdle
//
// Enough is a pass over each other member that is not excused: any of them may be the only one that
// still has a write. To fill one who is whole where it has to be, or new, all but one of the ring
// that is read are enough: two of a key's three owners know all that was acknowledged.
//
// Who is whole in the ring that is read is as good as any owner of what it owns there, and to be
// filled asks only for what it gains (Merge: MoveBoth); unless the ring that comes has fewer than
// three.
//
// Members that are excused needn't be copied, and are asked all the same: what they have is a lower
// bound. A member that started anew is copied from its beginning; one that can't be reached, or is
// not whole, is waited for as long as it takes, because nobody else may have what it has.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

struct RepairOptions {
  // Longer than any write may count the acknowledgement of a former life (kWriteDeadlineMax), than
  // readers read the memory that it left (fabric: 2 s), and than it may serve that nobody has told
  // of its successor (its lease, 1.5 s).
  Duration rest = Duration::Millis(2500);
  Duration retry = Duration::Millis(200);  // a page that did not come, or had no room
  // Of all members together. Who reads notices more (./dev bench resharding).
  uint64_t bytes_per_second = 25u << 20;
  // Of a page, more or less. So much of the rate is taken when it is asked for, so that pages come
  // one after the other, from one member after the other, and no server is busy with many at once.
  uint32_t page_bytes = 512u << 10;
  // Each value from one of its owners. For chunks: what one of them missed, readers find elsewhere.
  bool once = false;
};

class RepairCore {
 public:
  enum class State : uint8_t { kIdle, kResting, kCopying, kCopied };

  // `name`, `incarnation`: ours, as in RingConfig. `now`: when we began with empty memory.
  RepairCore(RepairOptions options, std::string name, ProcessIncarnation incarnation,
             MonotonicTime now)
      : options_(options),
        name_(std::move(name)),
        incarnation_(incarnation),
        empty_since_(now),
        next_page_(now) {}

  void OnRing(MonotonicTime now, const RingConfig& ring);

  // Pages to ask for, each of another member; usually one. To be called when `next()` has come, and
  // after each other call.
  struct Ask {
    uint64_t id = 0;  // of the answer
    std::string member;
    ProcessIncarnation incarnation = ProcessIncarnation::kNone;
    uint64_t cursor = 0;
    ConfigurationId gained_in{};  // not 0: only what we gain by the change of this configuration
  };
  std::vector<Ask> TakeDue(MonotonicTime now);
  // Max: there is nothing to wait for but the ring or an answer.
  MonotonicTime next() const;

  struct Page {
    uint64_t next_cursor = 0;  // 0: the last page; else greater than the one that was asked for
    uint64_t bytes = 0;
    ConfigurationId configuration_id{};  // of the member's ring; an older one leaves keys out
    // All of it that concerns us was taken in; else it is asked for again, chunks kPutOffMax times.
    bool kept = true;
  };
  static constexpr int kPutOffMax = 10;
  // The answer to ask `id`; false: it is late, nobody waits for it.
  bool OnPage(MonotonicTime now, uint64_t id, const Page& page);
  void OnFailure(MonotonicTime now, uint64_t id);

  State state() const { return state_; }
  // The epoch for which we have rested and copied; 0: for none.
  CacheEpoch copied() const { return state_ == State::kCopied ? epoch_ : CacheEpoch{}; }
  // The configuration (of phase kBoth) for which we have been filled; 0: for none.
  ConfigurationId filled() const { return state_ == State::kCopied ? fills_ : ConfigurationId{}; }
  // In kCopying: members that are still missing, sorted.
  std::vector<std::string> Missing() const;

 private:
  // A pass over a member:
  //
  //   kDue ──a page is asked for──▶ kAsked ──the last page; it counts───────▶ kCounted
  //     ▲                             │  └───the last page; it does not─────▶ kVisited
  //     └──another page, or a failure─┘                                          │
  //     └────────another life of the member, or since now it is whole────────────┘
  //
  // A pass that counts is enough, whichever life of the member it was over: only StartOver begins
  // another one.
  enum class Pass : uint8_t { kDue, kAsked, kVisited, kCounted };
  struct Member {
    std::string name;
    ProcessIncarnation incarnation = ProcessIncarnation::kNone;  // kNone: it is not there
    bool whole = false, excused = false;
    Pass pass = Pass::kDue;
    bool whole_all_along = false;  // during the pass under way, so that it will count
    uint64_t ask = 0;              // in kAsked
    uint64_t cursor = 0;
    int put_off = 0;  // how often in a row the page at the cursor could not be kept
    MonotonicTime not_before;

    void Become(Pass next);
    void Begin(MonotonicTime now);
    void AskAgain(MonotonicTime when);
    bool there() const { return incarnation != ProcessIncarnation::kNone; }
    // It has copied what there was to copy, or need not be waited for.
    bool enough() const { return pass == Pass::kCounted || excused; }
  };
  void Become(State state);
  void StartOver(MonotonicTime now, bool rests);
  void Look(MonotonicTime now);
  Duration TimeOf(uint64_t bytes) const;  // at the rate
  Member* Find(uint64_t ask);
  static bool Wanted(const Member& member) { return member.there() && member.pass == Pass::kDue; }

  const RepairOptions options_;
  const std::string name_;
  const ProcessIncarnation incarnation_;
  MonotonicTime empty_since_;
  bool known_ = false;  // the registry has our incarnation: an earlier one is not heard again
  State state_ = State::kIdle;
  MonotonicTime rested_at_, next_page_;
  ConfigurationId configuration_id_{};
  CacheEpoch epoch_{};
  ConfigurationId fills_{};   // that we are filled for; 0: for none
  bool gained_only_ = false;  // what else we will own we have
  bool has_own_ = false;      // has copied what it owns in the ring that is read
  bool is_whole_ = false;     // in the ring that is read
  bool was_whole_ = false;
  bool in_ring_ = false;
  std::vector<Member> members_;  // the others of the ring that is read, by name
  size_t turn_ = 0;              // of members_: who is asked next, if he is due
  uint64_t next_ask_ = 1;
};

}  // namespace tailcast::cache
