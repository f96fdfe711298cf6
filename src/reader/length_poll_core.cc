#include "tailcast/reader/length_poll_core.h"

#include <algorithm>

namespace tailcast::reader {

void LengthPollCore::Add(uint64_t operation, cache::Key key) {
  Group& group = groups_[key];
  group.operations.insert(operation);
  group.dirty = true;
}

bool LengthPollCore::Remove(uint64_t operation, cache::Key key) {
  const auto it = groups_.find(key);
  if (it == groups_.end()) return false;
  it->second.operations.erase(operation);
  if (!it->second.operations.empty()) return false;
  groups_.erase(it);
  return true;
}

std::vector<cache::Key> LengthPollCore::OnTick(MonotonicTime now) {
  return Read(now, !options_.doorbells || now - last_full_read_ >= options_.full_interval);
}

std::vector<cache::Key> LengthPollCore::NextRead(MonotonicTime now) {
  const bool any_dirty = std::any_of(groups_.begin(), groups_.end(),
                                     [](const auto& group) { return group.second.dirty; });
  return any_dirty ? Read(now, false) : std::vector<cache::Key>();
}

std::vector<cache::Key> LengthPollCore::Read(MonotonicTime now, bool all) {
  std::vector<cache::Key> keys;
  if (reading_) return keys;
  for (auto& [key, group] : groups_) {
    const bool refused =
        group.doorbell == Doorbell::kRefused || group.doorbell == Doorbell::kTriedAgain;
    if (!all && !group.dirty && !refused) continue;
    group.dirty = false;
    keys.push_back(key);
  }
  if (keys.empty()) return keys;
  if (all) last_full_read_ = now;
  reading_ = true;
  return keys;
}

bool LengthPollCore::TakeWatch(cache::Key key) {
  const auto it = groups_.find(key);
  if (!options_.doorbells || it == groups_.end()) return false;
  switch (it->second.doorbell) {
    case Doorbell::kUnwatched:
      it->second.doorbell = Doorbell::kWatched;
      return true;
    case Doorbell::kRefused:
      it->second.doorbell = Doorbell::kTriedAgain;
      return true;
    case Doorbell::kWatched:
    case Doorbell::kTriedAgain:
      break;
  }
  return false;
}

void LengthPollCore::OnDoorbell(cache::Key key, bool watched) {
  const auto it = groups_.find(key);
  if (it == groups_.end()) return;
  Group& group = it->second;
  if (group.doorbell != Doorbell::kWatched && group.doorbell != Doorbell::kTriedAgain) return;
  group.doorbell = watched ? Doorbell::kUnwatched : Doorbell::kRefused;
  if (watched) group.dirty = true;
}

std::vector<uint64_t> LengthPollCore::OperationsOf(cache::Key key) const {
  const auto it = groups_.find(key);
  if (it == groups_.end()) return {};
  return {it->second.operations.begin(), it->second.operations.end()};
}

}  // namespace tailcast::reader
