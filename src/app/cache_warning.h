// A stream that is made: whether the data caches of its cells will hold a minute of it, where it is
// known how much it will write (inspect/cache_room.h).
#pragma once

#include <vector>

#include "tailcast/app/deployment.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::app {

// Says on standard error which of `cells` have too small a data cache for `data_bytes_per_s` more,
// and what to do; of those that carry the stream (an empty name: taken to do). Asks them, for some
// seconds each; one that does not answer is passed over. Nothing if the rate is 0.
void WarnOfSmallCaches(const std::vector<DeploymentCell>& cells, const v1::StreamConfig& stream,
                       double data_bytes_per_s);

// What the cell's topology says of the stream, in bytes/s; 0: nothing.
double ExpectedRate(const v1::CellView& view, const std::string& stream);

}  // namespace tailcast::app
