// What the options of a Producer (producer.h) may be, and what they ask of the agents of its
// shards.
#pragma once

#include <cstdint>

#include "tailcast/base/status.h"
#include "tailcast/producer/producer.h"
#include "tailcast/producer/producer_agent.h"

namespace tailcast::producer {

// Of the files that a shard begins.
struct ChunkSize {
  int64_t bytes = 0;  // 0: the agent's default
  bool by_rate = false;
};

// InvalidArgument names the option and what is allowed.
Status CheckOptions(const Options& options);
AgentOptions ToAgentOptions(const Options& options, ChunkSize chunks);

}  // namespace tailcast::producer
