// Where the shards of a stream end at the moment.
#pragma once

#include <cstdint>
#include <map>

#include "tailcast/base/status.h"
#include "tailcast/consumer/consumer.h"

namespace tailcast::app {

// Numbers behind the newest messages that the cell has, of the shards that `options` names; 0 of a
// shard that has none. Waits until all of them are found, or an interrupt comes, which leaves some
// out; says on stderr what it waits for. Errors as Consumer::Open and Poll, and Unavailable when an
// end was not found within options.open_timeout.
Result<std::map<int32_t, int64_t>> EndsNow(consumer::Options options);

}  // namespace tailcast::app
