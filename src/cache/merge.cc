#include "tailcast/cache/merge.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tailcast::cache {
namespace {

uint64_t Lane(std::string_view bytes, size_t at) {
  uint64_t lane = 0;
  if (at < bytes.size()) std::memcpy(&lane, bytes.data() + at, 8);
  return lane;  // little-endian hosts only; memory_layout.h asserts it
}

}  // namespace

bool WellFormed(MergeRule rule, std::string_view value) {
  switch (rule) {
    case MergeRule::kLongerWins:
    case MergeRule::kMaxBytes:
      return true;
    case MergeRule::kMaxLanes:
      return value.size() % 8 == 0;
  }
  return false;
}

MutationResult CompareForMerge(MergeRule rule, std::string_view stored, std::string_view given) {
  if (!WellFormed(rule, given)) return MutationResult::kRefused;
  switch (rule) {
    case MergeRule::kLongerWins: {
      const size_t common = std::min(stored.size(), given.size());
      if (std::memcmp(stored.data(), given.data(), common) != 0) return MutationResult::kMismatch;
      return given.size() > stored.size() ? MutationResult::kApplied : MutationResult::kNoChange;
    }
    case MergeRule::kMaxLanes: {
      if (given.size() > stored.size()) return MutationResult::kApplied;
      for (size_t at = 0; at < given.size(); at += 8) {
        if (Lane(given, at) > Lane(stored, at)) return MutationResult::kApplied;
      }
      return MutationResult::kNoChange;
    }
    case MergeRule::kMaxBytes: {
      const bool greater =
          given.size() != stored.size() ? given.size() > stored.size() : given > stored;
      return greater ? MutationResult::kApplied : MutationResult::kNoChange;
    }
  }
  return MutationResult::kRefused;
}

MutationResult MergeInto(MergeRule rule, std::string& stored, std::string_view given) {
  const MutationResult result = CompareForMerge(rule, stored, given);
  if (result != MutationResult::kApplied) return result;
  if (rule != MergeRule::kMaxLanes) {
    stored.assign(given);
    return result;
  }
  if (stored.size() < given.size()) stored.resize(given.size(), '\0');
  for (size_t at = 0; at < given.size(); at += 8) {
    const uint64_t lane = std::max(Lane(stored, at), Lane(given, at));
    std::memcpy(stored.data() + at, &lane, 8);
  }
  return result;
}

}  // namespace tailcast::cache
