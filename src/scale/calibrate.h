// The model beside up to 64 real agents: the same flow, intervals and hops, what the agents asked
// of the caches and how long their messages took, and what the model says of it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::scale {

// The largest part by which the model may be off.
inline constexpr double kErrorMax = 0.1;

struct Calibrated {
  std::string setup;  // in words
  std::string what;
  std::string unit;
  double agents = 0, model = 0;
  double Error() const { return model / agents - 1; }
  bool Near() const { return std::abs(Error()) <= kErrorMax; }  // not if there is nothing
};

// What a cell itself takes, as agents of other seeds than those of the table show it.
struct OwnTimes {
  double publish_and_read_s = 0;  // a flush until it can be read, and a round of reads
  double hop_s = 0;               // without its look at the lengths and its link
};
Result<OwnTimes> MeasureOwnTimes();

// Some ten seconds of CPU time.
Result<std::vector<Calibrated>> Calibrate();

}  // namespace tailcast::scale
