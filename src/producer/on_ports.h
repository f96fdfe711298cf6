// A Producer over ports of the caller, for tests.
#pragma once

#include <cstdint>
#include <memory>

#include "tailcast/base/status.h"
#include "tailcast/producer/producer.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"

namespace tailcast::producer {

struct OnPorts {
  // As Producer::Open, of a stream with so many shards. The ports' loop runs on a thread of its own
  // that outlives the producer. `options.cell` is not used.
  static Result<std::unique_ptr<Producer>> Open(const stream::CellPorts& ports,
                                                const stream::StreamId& stream, int32_t shards,
                                                int64_t chunk_size, const Options& options);
};

}  // namespace tailcast::producer
