#include "tailcast/cell/floors.h"

#include <algorithm>
#include <string>

#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {

Floors::Floors(v1::RegistrySnapshot* durable) : durable_(durable) {
  for (v1::ShardFloor& floor : *durable_->mutable_floors()) {
    floors_[stream::ShardOf(floor)] = &floor;
  }
}

v1::ShardFloor& Floors::Get(const stream::ShardId& shard) {
  v1::ShardFloor*& floor = floors_[shard];
  if (floor == nullptr) {
    floor = durable_->add_floors();
    stream::SetShard(shard, floor);
    floor->set_seq(1);
  }
  return *floor;
}

int64_t Floors::Floor(const stream::ShardId& shard) const {
  const auto it = floors_.find(shard);
  return it == floors_.end() ? 1 : it->second->seq();
}

bool Floors::Raise(const stream::ShardId& shard, int64_t seq) {
  if (seq <= Floor(shard)) return false;
  Get(shard).set_seq(seq);
  return true;
}

int64_t Floors::Trimmed(const stream::ShardId& shard) const {
  const auto it = floors_.find(shard);
  return it == floors_.end() ? 1 : std::max<int64_t>(1, it->second->trim_seq());
}

bool Floors::Trim(const stream::ShardId& shard, int64_t seq) {
  if (seq <= Trimmed(shard)) return false;
  Get(shard).set_trim_seq(seq);
  return true;
}

const v1::HeldUp* Floors::HeldUp(const stream::ShardId& shard, const std::string& cell) const {
  const auto it = floors_.find(shard);
  if (it == floors_.end()) return nullptr;
  for (const v1::HeldUp& held : it->second->held_up()) {
    if (held.cell() == cell) return &held;
  }
  return nullptr;
}

bool Floors::NoteHeldUp(const stream::ShardId& shard, const std::string& cell, int64_t done,
                        Duration time) {
  const bool known = HeldUp(shard, cell) != nullptr;
  if (!known && time == Duration()) return false;
  auto* all = Get(shard).mutable_held_up();
  const auto it = std::find_if(all->begin(), all->end(),
                               [&](const v1::HeldUp& held) { return held.cell() == cell; });
  if (time == Duration()) {
    all->erase(it);
    return true;
  }
  v1::HeldUp* held = known ? &*it : all->Add();
  held->set_cell(cell);
  held->set_done_seq(done);
  held->set_time_us(time.micros());
  return true;
}

bool Floors::NoteRan(Duration ran) {
  if (ran <= this->ran()) return false;
  durable_->set_ran_us(ran.micros());
  return true;
}

std::optional<Duration> Floors::SeenBy(const stream::ShardId& shard, int64_t seq) const {
  const auto it = floors_.find(shard);
  if (it == floors_.end()) return std::nullopt;
  for (const v1::FileSeen& seen : it->second->seen()) {
    if (seen.seq() >= seq) return Duration::Micros(seen.ran_us());
  }
  return std::nullopt;
}

std::pair<int64_t, Duration> Floors::LastSeen(const stream::ShardId& shard) const {
  const auto it = floors_.find(shard);
  if (it == floors_.end() || it->second->seen().empty()) return {0, Duration()};
  const v1::FileSeen& last = *it->second->seen().rbegin();
  return {last.seq(), Duration::Micros(last.ran_us())};
}

void Floors::NoteSeen(const stream::ShardId& shard, int64_t seq, Duration ran, Duration old) {
  v1::ShardFloor& floor = Get(shard);
  const int64_t kept_from = floor.seq();
  auto* all = floor.mutable_seen();
  // The last of the old ones says it of all of them.
  while (all->size() > 0 && (all->Get(0).seq() < kept_from ||
                             (all->size() > 1 && all->Get(1).ran_us() < old.micros()))) {
    all->erase(all->begin());
  }
  if (all->size() >= kSeenMax) {
    for (int i = 0; i < all->size(); ++i) all->erase(all->begin() + i);  // every other one
  }
  v1::FileSeen* seen = all->Add();
  seen->set_seq(seq);
  seen->set_ran_us(ran.micros());
}

void Floors::Forget(const stream::StreamId& stream) {
  auto* all = durable_->mutable_floors();
  const auto left = std::partition(
      all->pointer_begin(), all->pointer_end(),
      [&](const v1::ShardFloor* floor) { return stream::ShardOf(*floor).stream != stream; });
  const auto kept = static_cast<int>(left - all->pointer_begin());
  all->DeleteSubrange(kept, all->size() - kept);
  std::erase_if(floors_, [&](const auto& entry) { return entry.first.stream == stream; });
}

Status CheckRetention(const v1::Retention& r) {
  if (r.age_max_us() < 0) return InvalidArgumentError("retention.age_max_us is negative");
  if (r.shard_bytes_max() < 0) return InvalidArgumentError("retention.shard_bytes_max is negative");
  if (r.file_bytes() < 0) return InvalidArgumentError("retention.file_bytes is negative");
  if (r.away_max_us() < 0) return InvalidArgumentError("retention.away_max_us is negative");
  if (r.drop() && r.shard_bytes_max() == 0) {
    return InvalidArgumentError(
        "retention.drop says what happens when shard_bytes_max is reached, and there is none");
  }
  return OkStatus();
}

}  // namespace tailcast::cell
