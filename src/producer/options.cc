#include "tailcast/producer/options.h"

#include <string>

#include "tailcast/base/thread_times.h"
#include "tailcast/base/time.h"
#include "tailcast/stream/names.h"

namespace tailcast::producer {
namespace {

Status CheckTime(const char* name, Duration time, Duration least) {
  if (time >= least && time <= kTimeMax) return OkStatus();
  return InvalidArgumentError(std::string("Options::") + name + " is " +
                              std::to_string(time.millis()) + " ms; " +
                              std::to_string(least.millis()) + " ms to 7 days are allowed");
}

}  // namespace

Status CheckOptions(const Options& options) {
  TAILCAST_RETURN_IF_ERROR(
      CheckTime("publish_timeout", options.publish_timeout, Duration::Millis(1)));
  return CheckTime("open_timeout", options.open_timeout, Duration());
}

AgentOptions ToAgentOptions(const Options& options, ChunkSize chunks) {
  AgentOptions agent;
  if (options.flush_interval > Duration()) {
    agent.flush_interval = options.flush_interval;
  } else if (options.profile == Profile::kLowLatency) {
    agent.flush_interval = kLowLatencyFlushInterval;
    agent.self_clocked = true;
    agent.thread_times = ReadThreadTimes;
  }
  agent.flush_bytes = options.flush_bytes;
  // The intake in front of it is what bounds memory.
  agent.buffer_bytes_max = agent.buffer_messages_max = INT64_MAX;
  agent.message_bytes_max = options.message_bytes_max;
  if (chunks.bytes > 0) agent.chunk_size = chunks.bytes;
  agent.chunk_size_by_rate = chunks.by_rate && stream::IsStemChunkSize(agent.chunk_size);
  agent.roll_bytes = options.roll_bytes;
  agent.roll_age = options.roll_age;
  agent.takeover = options.takeover;
  agent.give_up = options.give_up;
  return agent;
}

}  // namespace tailcast::producer
