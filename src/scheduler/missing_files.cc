#include "tailcast/scheduler/missing_files.h"

#include <algorithm>

#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {

using stream::ShardId;
using stream::Stem;

void MissingFiles::Add(Shard& shard, int64_t seq, v1::LackingFile::Kind kind,
                       std::vector<Found>& found) {
  if (shard.lacking.size() >= kPerShardMax && !shard.lacking.contains(seq)) return;
  const auto [it, is_new] = shard.lacking.try_emplace(seq);
  if (!is_new && it->second.kind == kind) return;
  if (!is_new && it->second.look < shown_below_) --shown_left_;
  it->second = {kind, next_look_++};
  if (is_new) ++total_;
  ++changes_;
  found.push_back(
      {seq, kind,
       kind != v1::LackingFile::ABSENT || seq <= shard.whole_to || shard.listed.contains(seq)});
}

void MissingFiles::Remove(Shard& shard, int64_t seq) {
  const auto it = shard.lacking.find(seq);
  if (it == shard.lacking.end()) return;
  if (it->second.look < shown_below_) --shown_left_;
  shard.lacking.erase(it);
  --total_;
  ++changes_;
}

void MissingFiles::OnNotice(const ShardId& id, int64_t seq) {
  Shard& shard = shards_[id];
  shard.known_to = std::max(shard.known_to, seq);
  shard.opened.insert(seq);
  Remove(shard, seq);
}

void MissingFiles::OnListingBegins(const ShardId& id) {
  Shard& shard = shards_[id];
  shard.listing_to = shard.known_to;
  shard.opened.clear();
}

std::vector<MissingFiles::Found> MissingFiles::OnListed(const ShardId& id, int64_t floor,
                                                        const std::vector<Stem>& complete_pairs) {
  Shard& shard = shards_[id];
  std::vector<Found> found;
  while (!shard.lacking.empty() && shard.lacking.begin()->first < floor) {
    Remove(shard, shard.lacking.begin()->first);
  }
  const int64_t newest = complete_pairs.empty() ? 0 : complete_pairs.back().seq;
  const int64_t last = std::max(shard.listing_to, newest);
  int64_t seq = floor;
  const auto absent_up_to = [&](int64_t end) {
    for (; seq < end && shard.lacking.size() < kPerShardMax; ++seq) {
      if (!shard.opened.contains(seq)) Add(shard, seq, v1::LackingFile::ABSENT, found);
    }
  };
  for (const Stem& stem : complete_pairs) {
    if (stem.seq < floor) continue;
    absent_up_to(stem.seq);
    seq = stem.seq + 1;
    const auto lack = shard.lacking.find(stem.seq);
    if (lack != shard.lacking.end() && lack->second.kind == v1::LackingFile::ABSENT) {
      Remove(shard, stem.seq);
    }
  }
  absent_up_to(last + 1);
  shard.whole_to = std::max(shard.whole_to, floor - 1);
  for (const Stem& stem : complete_pairs) {
    if (stem.seq > shard.whole_to) shard.listed.insert(stem.seq);
  }
  while (!shard.listed.empty() && *shard.listed.begin() <= shard.whole_to + 1) {
    shard.whole_to = std::max(shard.whole_to, *shard.listed.begin());
    shard.listed.erase(shard.listed.begin());
  }
  shard.known_to = std::max(shard.known_to, newest);
  return found;
}

std::vector<MissingFiles::Found> MissingFiles::OnLooked(const ShardId& id, int64_t from_seq,
                                                        const ShardProgress& progress) {
  Shard& shard = shards_[id];
  std::vector<Found> found;
  for (const int64_t seq : progress.damaged) {
    if (seq >= from_seq && !shard.opened.contains(seq)) {
      Add(shard, seq, v1::LackingFile::DAMAGED, found);
    }
  }
  auto next = progress.listed.begin();
  for (const auto& [stem, length] : progress.files) {
    while (next != progress.listed.end() && next->seq <= stem.seq) ++next;
    const auto seal = next == progress.listed.end() ? std::nullopt : SealBetween(stem, *next);
    if (!seal) {
      // Nobody knows how long it should be: it is there, and in one piece.
      const auto lack = shard.lacking.find(stem.seq);
      if (lack != shard.lacking.end() && lack->second.kind == v1::LackingFile::DAMAGED) {
        Remove(shard, stem.seq);
      }
    } else if (length[0] >= seal->length[0] && length[1] >= seal->length[1]) {
      Remove(shard, stem.seq);
    } else {
      Add(shard, stem.seq, v1::LackingFile::INCOMPLETE, found);
    }
  }
  return found;
}

void MissingFiles::OnStreamRemoved(const stream::StreamId& stream) {
  for (auto it = shards_.lower_bound({stream, 0});
       it != shards_.end() && it->first.stream == stream;) {
    while (!it->second.lacking.empty()) Remove(it->second, it->second.lacking.begin()->first);
    it = shards_.erase(it);
  }
}

bool MissingFiles::NewsToShow() const {
  if (!changed()) return false;
  return total_ == 0 || next_look_ > found_before_ ||
         (shown_left_ < kShownMax / 4 && total_ > shown_left_);
}

std::vector<v1::LackingFile> MissingFiles::Show() {
  std::vector<v1::LackingFile> shown;
  for (const auto& [id, shard] : shards_) {
    for (const auto& [seq, lack] : shard.lacking) {
      v1::LackingFile& file = shown.emplace_back();
      stream::SetShard(id, &file);
      file.set_seq(seq);
      file.set_kind(lack.kind);
      file.set_look(lack.look);
    }
  }
  const auto by_look = [](const auto& a, const auto& b) { return a.look() < b.look(); };
  std::sort(shown.begin(), shown.end(), by_look);
  if (shown.size() > kShownMax) shown.resize(kShownMax);
  shown_changes_ = changes_;
  found_before_ = next_look_;
  shown_below_ = shown.empty() ? 0 : shown.back().look() + 1;
  shown_left_ = static_cast<int64_t>(shown.size());
  return shown;
}

}  // namespace tailcast::scheduler
