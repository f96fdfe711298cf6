// How a shard is, as its consumer sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

enum class ShardState : uint8_t {
  kLocating,  // finding the start point
  kWaiting,   // the start point, or the next file, is not here yet
  kTailing,   // messages flow
  kQuiet,     // nothing new, and the heartbeat says that this is all there is
  kStuck,     // nothing new, and no heartbeat: the path from the producer is cut
  kFailed,    // see ShardStatus::error
};
std::string_view ShardStateName(ShardState state);

struct ShardStatus {
  ShardState state = ShardState::kLocating;
  // kFailed:
  //   OutOfRange       the start position lies before what the cell keeps: the message says where
  //                    that begins, as does `first_available`
  //   DataLoss         bytes contradict their check sums, those of the last source too: names file,
  //                    part, position, and the sources that were asked again
  //   InvalidArgument  a position of another stream or shard, or one that is no message's beginning
  //   NotFound         the stream was deleted
  Status error;
  std::optional<stream::Position> first_available;
  // Data bytes of the current file that are known to exist and were not given yet: the lag, as far
  // as this cell knows.
  int64_t lag_bytes = 0;
  // A file behind the current one is known, which is not the last one then.
  bool next_is_known = false;
  // Poll would give something at once.
  bool ready = false;
  // Why bytes that are said to be there could not be read at the last try, or, in kLocating, what
  // the start point is found by; Ok when they could. Not an end: it is tried again for as long as
  // it takes, and a copy that is on its way heals it.
  Status trouble;
  // What the cell knows to have been written and does not have, now: Unavailable says what,
  // DataLoss that its disk has lost it. Ok: nothing is missed. Not an end either: it may be on its
  // way.
  Status missing;
  // Whether somebody who knows was asked since the last message came, so that what is known and not
  // missed is all there is. It is soon after a message, where the producer's side or the primary
  // layer can be asked: after three seconds or four.
  bool end_is_known = false;
  // How many messages the shard has here, if it begins behind them all: the cell is behind the one
  // that the position is from, or it is no position of this stream.
  std::optional<int64_t> begins_beyond;
  // Heartbeat of the current file, or of the next one: the producer's side was alive and had
  // published everything then. 0: not known.
  WallTime as_of;
};

}  // namespace tailcast::consumer
