// The options of a ReaderAgent.
#pragma once

#include <cstdint>
#include <string>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/time.h"
#include "tailcast/reader/copy_core.h"

namespace tailcast::reader {

struct ReaderOptions {
  std::string name;  // of this process, unique in the cell
  std::string cell;
  ProcessIncarnation incarnation{1};
  Duration poll_interval = Duration::Millis(50);
  bool doorbells = false;  // low-latency profile: lengths are watched; polls become a fallback
  Duration doorbell_timeout = Duration::Seconds(2);
  Duration primary_poll_interval = Duration::Seconds(1);
  Duration cache_timeout = Duration::Millis(250);
  CopyOptions copy;
  int64_t queued_bytes_max = 1 << 20;  // of one stream
  int operations_max = 4000;
  int ended_max = 10000;  // ended operations that wait to be reported
  // A writer that has everything and does not close the stream for so long is stuck.
  Duration end_timeout = Duration::Seconds(10);
  // A list that finds no news waits for some: until an operation has begun, opened or ended;
  // list_progress_interval, if one got on; or as long as it asks, and this at most.
  Duration list_wait_max = Duration::Seconds(5);
  Duration list_progress_interval = Duration::Millis(500);
};

}  // namespace tailcast::reader
