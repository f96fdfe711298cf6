// How old what a consumer gave last is, where more is there: its lag in time.
//
// A core: no clock, no I/O.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "tailcast/base/time.h"

namespace tailcast::consumer {

class GivenTimes {
 public:
  // The last message that was given of the shard has the producer's time `time_us`.
  void OnGiven(int32_t shard, int64_t time_us) { last_[shard] = time_us; }
  // It is read from another place from now on.
  void Forget(int32_t shard) { last_.erase(shard); }
  // How old that message is; 0: none was given, or it is of the future.
  Duration Age(int32_t shard, WallTime now) const {
    const auto last = last_.find(shard);
    if (last == last_.end()) return Duration();
    return std::max(Duration(), now - WallTime::FromMicros(last->second));
  }

 private:
  std::map<int32_t, int64_t> last_;
};

}  // namespace tailcast::consumer
