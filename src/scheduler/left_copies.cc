#include "tailcast/scheduler/left_copies.h"

#include <algorithm>

namespace tailcast::scheduler {

using stream::StreamId;

bool HasLeft(const v1::StreamConfig& stream, const std::string& cell) {
  if (stream.source() == cell) return false;
  const auto& destinations = stream.destinations();
  if (std::find(destinations.begin(), destinations.end(), cell) != destinations.end()) return false;
  return std::none_of(stream.tree().begin(), stream.tree().end(),
                      [&](const v1::TreeEdge& edge) { return edge.to() == cell; });
}

bool LeftCopies::OnStream(const v1::StreamConfig& stream) {
  const StreamId id = stream::IdOf(stream);
  if (HasLeft(stream, cell_)) {
    Left& left = left_[id];
    left.shards = stream.shards();
    if (left.changing && !stream.has_change()) left.rested = Duration();
    left.changing = stream.has_change();
    return false;
  }
  const auto it = left_.find(id);
  if (it == left_.end()) return false;
  const bool was_going = it->second.going;
  left_.erase(it);
  return was_going;
}

void LeftCopies::OnNotice(const StreamId& stream) {
  const auto it = left_.find(stream);
  if (it == left_.end()) return;
  it->second.files = true;
  it->second.rested = Duration();
}

void LeftCopies::OnFiles(const StreamId& stream) {
  const auto it = left_.find(stream);
  if (it != left_.end()) it->second.files = true;
}

std::vector<std::pair<StreamId, int32_t>> LeftCopies::OnTime(Duration passed) {
  std::vector<std::pair<StreamId, int32_t>> go;
  for (auto& [id, left] : left_) {
    if (!left.files || left.going) continue;
    left.rested = left.rested + passed;
    if (left.rested < (left.changing ? kRestWhileChanging : rest_)) continue;
    left.going = true;
    go.emplace_back(id, left.shards);
  }
  return go;
}

bool LeftCopies::IsGoing(const StreamId& stream) const {
  const auto it = left_.find(stream);
  return it != left_.end() && it->second.going;
}

void LeftCopies::OnGone(const StreamId& stream) {
  const auto it = left_.find(stream);
  if (it == left_.end()) return;
  it->second = {.shards = it->second.shards, .changing = it->second.changing};
}

}  // namespace tailcast::scheduler
