#include "tailcast/cache/replica_speed.h"

#include <algorithm>
#include <vector>

namespace tailcast::cache {

void ReplicaSpeed::OnLatency(Duration latency) {
  if (latencies_ == 0) {
    estimate_ = latency;
  } else {
    latency = std::min(latency, estimate_ * 8 + Duration::Millis(1));
    estimate_ = estimate_ + (latency - estimate_) / 8;
  }
  latencies_ = std::min(latencies_ + 1, kLatenciesMin);
}

bool ReplicaSpeed::TakeProbe(MonotonicTime now) {
  if (++reads_since_probe_ < kReadsPerProbe && now < next_probe_) return false;
  reads_since_probe_ = 0;
  next_probe_ = now + kProbeInterval;
  return true;
}

uint32_t JudgeSpeeds(std::span<ReplicaSpeed* const> replicas) {
  std::vector<ReplicaSpeed*> known;
  for (ReplicaSpeed* const replica : replicas) {
    if (replica->known()) {
      known.push_back(replica);
    } else {
      replica->avoided_ = false;
    }
  }
  if (known.size() < 2) {
    for (ReplicaSpeed* const replica : known) replica->avoided_ = false;
    return 0;
  }
  std::stable_sort(known.begin(), known.end(), [](const ReplicaSpeed* a, const ReplicaSpeed* b) {
    return a->estimate_ < b->estimate_;
  });
  // Taken before anything is judged: of the others of each, the lower median.
  uint32_t came = 0;
  const size_t middle = (known.size() - 2) / 2;
  for (size_t i = 0; i < known.size(); ++i) {
    ReplicaSpeed& replica = *known[i];
    const Duration others = known[middle < i ? middle : middle + 1]->estimate_;
    const int factor = replica.avoided_ ? ReplicaSpeed::kFastFactor : ReplicaSpeed::kSlowFactor;
    const Duration more = replica.avoided_ ? ReplicaSpeed::kFastMin : ReplicaSpeed::kSlowMin;
    const bool avoid = replica.estimate_ > others * factor + more;
    came += avoid && !replica.avoided_ ? 1 : 0;
    replica.avoided_ = avoid;
  }
  return came;
}

}  // namespace tailcast::cache
