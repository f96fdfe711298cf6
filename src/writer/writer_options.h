// The options of a WriterAgent.
#pragma once

#include <cstdint>
#include <string>

#include "tailcast/base/time.h"
#include "tailcast/writer/lock_core.h"
#include "tailcast/writer/primary_copy_core.h"

namespace tailcast::writer {

struct WriterOptions {
  std::string name;  // of this process, unique in the cell
  std::string cell;
  int operations_max = 4000;  // running; further ones are ResourceExhausted
  PrimaryCopyOptions primary;
  // Of one operation, each part, at most: 40 MB/s over 400 ms.
  int64_t primary_window_bytes = 16 << 20;
  int64_t cache_window_bytes = 16 << 20;
  // Of all operations of a layer (buffer_share.h). A backlog of files takes nothing from the
  // caches'.
  int64_t primary_buffer_bytes = 48 << 20;
  int64_t cache_buffer_bytes = 48 << 20;
  int64_t cache_batch_bytes = 256 << 10;  // of one bulk write
  int cache_batches_max = 8;              // outstanding, of one operation
  LockOptions lock;
  Duration cache_timeout = Duration::Millis(400);  // of one cache call
  Duration retry_delay = Duration::Millis(20);     // doubles with each failed cache write in a row
  Duration retry_delay_max = Duration::Millis(500);
  int publish_attempts_at_end = 5;  // before an operation ends without having published its end
  Duration linger = Duration::Seconds(5);         // of the stream of an ended operation, at most
  Duration open_timeout = Duration::Seconds(10);  // for the first message of a stream
  Duration notice_retry = Duration::Millis(200);  // of a notice that the scheduler did not answer
};

}  // namespace tailcast::writer
