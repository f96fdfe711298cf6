#include "tailcast/scheduler/edge_change.h"

#include <algorithm>

#include "tailcast/base/check.h"

namespace tailcast::scheduler {

using stream::Layer;

namespace {

bool MayFollow(EdgeState from, EdgeState to) {
  switch (to) {
    case EdgeState::kWaiting:
      return from == EdgeState::kJoining;
    case EdgeState::kJoining:
      return from == EdgeState::kWaiting;
    case EdgeState::kMade:
      return from == EdgeState::kWaiting || from == EdgeState::kJoining;
    case EdgeState::kLeaving:
      return from != EdgeState::kLeaving;
  }
  return false;
}

}  // namespace

std::string_view EdgeStateName(EdgeState state) {
  switch (state) {
    case EdgeState::kWaiting:
      return "waiting";
    case EdgeState::kJoining:
      return "joining";
    case EdgeState::kMade:
      return "made";
    case EdgeState::kLeaving:
      return "leaving";
  }
  return "?";
}

EdgeChange::EdgeChange(const EdgeOptions& options, EdgePlan plan, int32_t shards)
    : options_(options),
      state_(plan.state),
      newcomer_(plan.newcomer),
      shards_(static_cast<size_t>(shards)) {}

void EdgeChange::SetState(EdgeState state) {
  TAILCAST_CHECK(MayFollow(state_, state), "an edge that is " + std::string(EdgeStateName(state_)) +
                                               " can't be " + std::string(EdgeStateName(state)));
  state_ = state;
}

bool EdgeChange::Waits(int32_t shard, Layer layer) const {
  const Stage needed = layer == Layer::kPrimary ? Stage::kTakenOver : Stage::kCaughtUp;
  return comes() && stage(shard) < needed;
}

bool EdgeChange::MayBegin(bool may) {
  if (!comes() || may == (state_ == EdgeState::kJoining)) return false;
  SetState(may ? EdgeState::kJoining : EdgeState::kWaiting);
  return may;
}

void EdgeChange::Leave() {
  if (state_ != EdgeState::kLeaving) SetState(EdgeState::kLeaving);
}

std::vector<int32_t> EdgeChange::Settle() {
  SetState(EdgeState::kMade);
  std::vector<int32_t> behind;
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (shards_[s].stage == Stage::kCaughtUp) continue;
    shards_[s].stage = Stage::kCaughtUp;
    behind.push_back(static_cast<int32_t>(s));
  }
  return behind;
}

bool EdgeChange::OnLook(int32_t shard_number, const Look& look, int64_t newest) {
  TAILCAST_CHECK(state_ == EdgeState::kJoining, "only an edge that joins looks");
  Shard& shard = shards_.at(shard_number);
  std::erase_if(shard.looks,
                [&](const Look& l) { return l.at < look.at - options_.caught_up_time; });
  const auto earlier = [&](auto holds) {
    return std::any_of(shard.looks.begin(), shard.looks.end(), holds);
  };
  const Stage before = shard.stage;
  switch (shard.stage) {
    case Stage::kBehind:
      if (look.source + options_.caught_up_bytes >= look.target ||
          earlier([&](const Look& l) { return look.source >= l.target; })) {
        shard.stage = Stage::kTakenOver;
      }
      break;
    case Stage::kTakenOver:
      // Asked before the newest file was opened, or was ours alone: look again.
      if (!shard.asked_fenced || (newest != 0 && shard.asked_newest != newest)) break;
      if (look.source >= look.target &&
          (!newcomer_ || look.target + options_.caught_up_bytes >= look.source ||
           earlier([&](const Look& l) { return look.target >= l.source; }))) {
        shard.stage = Stage::kCaughtUp;
      }
      break;
    case Stage::kCaughtUp:
      break;
  }
  shard.looks.push_back(look);
  if (shard.stage == before) return false;
  if (std::all_of(shards_.begin(), shards_.end(),
                  [](const Shard& s) { return s.stage == Stage::kCaughtUp; })) {
    SetState(EdgeState::kMade);
  }
  return true;
}

bool EdgeChange::Ask(MonotonicTime now, int32_t shard_number, int64_t newest, bool fenced) {
  Shard& shard = shards_.at(shard_number);
  if (shard.asking || now < shard.ask_at) return false;
  shard.asking = true;
  shard.asked_newest = newest;
  shard.asked_fenced = fenced;
  return true;
}

void EdgeChange::OnAnswer(MonotonicTime now, int32_t shard_number) {
  Shard& shard = shards_.at(shard_number);
  shard.asking = false;
  shard.ask_at = now + options_.progress_interval;
}

void EdgeChange::Retire(int32_t shard, Layer layer) {
  shards_.at(shard).retired[static_cast<int>(layer)] = true;
}

bool EdgeChange::Retired(int32_t shard, Layer layer) const {
  return shards_.at(shard).retired[static_cast<int>(layer)];
}

}  // namespace tailcast::scheduler
