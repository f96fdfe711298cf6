#include "tailcast/scheduler/leaver_core.h"

#include <algorithm>

#include "tailcast/base/fault_point.h"

namespace tailcast::scheduler {
namespace {

FAULT_POINT(kLastCopyGoes, "scheduler.last_copy_goes",
            "a cell that left gives back what the source has lost");

}  // namespace

std::string_view LeaverPhaseName(LeaverPhase phase) {
  switch (phase) {
    case LeaverPhase::kWaiting:
      return "waiting";
    case LeaverPhase::kTelling:
      return "telling";
    case LeaverPhase::kResting:
      return "resting";
    case LeaverPhase::kComparing:
      return "comparing";
    case LeaverPhase::kKeeping:
      return "keeping";
    case LeaverPhase::kGoing:
      return "going";
  }
  return "?";
}

CopiesCompared CompareCopies(const ShardProgress& there, const ShardProgress& here) {
  // Whether the source has all of it can't be told.
  const auto unread = std::lower_bound(there.unread.begin(), there.unread.end(), here.floor);
  const int64_t unread_seq = unread == there.unread.end() ? INT64_MAX : *unread;
  auto mine = here.files.begin();
  for (const PairLengths& file : there.files) {
    if (file.stem.seq < here.floor || kLastCopyGoes.planted()) continue;
    if (file.stem.seq > unread_seq) break;
    while (mine != here.files.end() && mine->stem.seq < file.stem.seq) ++mine;
    if (mine == here.files.end() && file.stem.seq > here.covered_to) {
      return {.next = file.stem.seq};
    }
    if (mine == here.files.end() || mine->stem != file.stem || mine->length[0] < file.length[0] ||
        mine->length[1] < file.length[1]) {
      const bool unread_here =
          std::binary_search(here.unread.begin(), here.unread.end(), file.stem.seq);
      return {.lost = file.stem.seq,
              .why = unread_here ? LastCopyWhy::kUnreadHere : LastCopyWhy::kLacking};
    }
  }
  if (unread_seq != INT64_MAX) return {.lost = unread_seq, .why = LastCopyWhy::kUnreadThere};
  return {.next = there.covered_to == INT64_MAX ? INT64_MAX : there.covered_to + 1};
}

void LeaverCore::Begin(LeaverPhase phase, MonotonicTime at, Leaver& leaver) {
  leaver.phase = phase;
  leaver.asked = false;
  leaver.at = at;
  leaver.shard = 0;
  leaver.from_seq = 1;
}

void LeaverCore::OnLeavers(MonotonicTime now, const std::vector<KnownLeaver>& leavers) {
  std::map<LeaverId, Leaver> before = std::move(leavers_);
  leavers_.clear();
  for (const KnownLeaver& known : leavers) {
    const auto it = before.find(known.id);
    Leaver leaver = it == before.end() ? Leaver() : it->second;
    leaver.shards = known.shards;
    const auto phase = leaver.phase;
    if (known.going) {
      if (phase != LeaverPhase::kGoing) Begin(LeaverPhase::kGoing, now, leaver);
    } else if (known.named) {
      if (phase != LeaverPhase::kWaiting) Begin(LeaverPhase::kWaiting, now, leaver);
    } else if (phase == LeaverPhase::kWaiting) {
      Begin(LeaverPhase::kTelling, now, leaver);
    }
    leavers_.emplace(known.id, leaver);
  }
}

LeaverCore::Leaver* LeaverCore::FindAsked(const LeaverId& id, LeaverPhase phase) {
  const auto it = leavers_.find(id);
  if (it == leavers_.end() || it->second.phase != phase || !it->second.asked) return nullptr;
  it->second.asked = false;
  return &it->second;
}

void LeaverCore::OnTold(MonotonicTime now, const LeaverId& id, bool ok) {
  Leaver* leaver = FindAsked(id, LeaverPhase::kTelling);
  if (leaver == nullptr) return;
  if (ok) {
    Begin(LeaverPhase::kResting, now + options_.rest, *leaver);
  } else {
    leaver->at = now + options_.retry;
  }
}

void LeaverCore::OnCompared(MonotonicTime now, const LeaverId& id, const CopiesCompared& compared) {
  Leaver* leaver = FindAsked(id, LeaverPhase::kComparing);
  if (leaver == nullptr) return;
  if (compared.lost != 0) {
    const int32_t shard = leaver->shard;
    Begin(LeaverPhase::kKeeping, now + options_.look_again, *leaver);
    leaver->shard = shard;
    leaver->lacking = compared.lost;
    leaver->why = compared.why;
    return;
  }
  if (compared.next <= leaver->from_seq) {  // no cell answers so
    Begin(LeaverPhase::kTelling, now + options_.retry, *leaver);
    return;
  }
  leaver->from_seq = compared.next;
  if (compared.next != INT64_MAX) return;
  ++leaver->shard;
  leaver->from_seq = 1;
}

void LeaverCore::OnCompareFailed(MonotonicTime now, const LeaverId& id) {
  if (Leaver* leaver = FindAsked(id, LeaverPhase::kComparing); leaver != nullptr) {
    // Perhaps it does not know the tree: it may have begun anew.
    Begin(LeaverPhase::kTelling, now + options_.retry, *leaver);
  }
}

void LeaverCore::OnOrdered(MonotonicTime now, const LeaverId& id) {
  if (Leaver* leaver = FindAsked(id, LeaverPhase::kGoing); leaver != nullptr) {
    leaver->at = now + options_.poll;
  }
}

int LeaverCore::Asked() const {
  return static_cast<int>(std::count_if(leavers_.begin(), leavers_.end(),
                                        [](const auto& entry) { return entry.second.asked; }));
}

void LeaverCore::DoWork(MonotonicTime now, LeaverEffects& out) {
  int asked = Asked();
  for (auto& [id, leaver] : leavers_) {
    if (leaver.asked || leaver.phase == LeaverPhase::kWaiting || now < leaver.at) continue;
    if (++asked > options_.calls_max) return;
    switch (leaver.phase) {
      case LeaverPhase::kWaiting:
        break;
      case LeaverPhase::kTelling:
        leaver.asked = true;
        out.tell.push_back(id);
        break;
      case LeaverPhase::kResting:
      case LeaverPhase::kKeeping:
        Begin(LeaverPhase::kComparing, now, leaver);
        [[fallthrough]];
      case LeaverPhase::kComparing:
        leaver.asked = true;
        if (leaver.shard < leaver.shards) {
          out.compare.push_back({id, leaver.shard, leaver.from_seq});
        } else {
          out.go.push_back(id);
        }
        break;
      case LeaverPhase::kGoing:
        leaver.asked = true;
        out.order.push_back(id);
        break;
    }
  }
}

MonotonicTime LeaverCore::NextWork() const {
  MonotonicTime next = MonotonicTime::Max();
  if (Asked() >= options_.calls_max) return next;  // the next answer comes first
  for (const auto& [id, leaver] : leavers_) {
    if (leaver.asked || leaver.phase == LeaverPhase::kWaiting) continue;
    next = std::min(next, leaver.at);
  }
  return next;
}

std::vector<LeaverRow> LeaverCore::Rows() const {
  std::vector<LeaverRow> rows;
  for (const auto& [id, leaver] : leavers_) {
    rows.push_back({id, leaver.phase, leaver.shard, leaver.lacking, leaver.why});
  }
  return rows;
}

}  // namespace tailcast::scheduler
