#include "tailcast/scale/reading.h"

#include <algorithm>

#include "tailcast/cache/memory_layout.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::scale {
namespace {

// Chunks that `bytes` in a row lie in, begun anywhere; a partly filled one is read, and written,
// again for what has come to it.
double ChunksOf(double bytes, double chunk_bytes) {
  return bytes <= 0 ? 0 : 1 + std::max(0.0, bytes - 1) / chunk_bytes;
}

double IndexRate(const ShardFlow& flow) {
  return flow.bytes_per_s / flow.message_bytes * static_cast<double>(stream::kIndexRecordSize);
}

}  // namespace

Reading ReadingOf(const ShardFlow& flow, double round_s) {
  const double apart = std::max(round_s, flow.flush_s);  // rounds with news
  const double index_rate = IndexRate(flow);
  Reading reading;
  reading.rounds = 1 / apart;
  reading.chunk_reads = (ChunksOf(flow.bytes_per_s * apart, flow.chunk_bytes) +
                         ChunksOf(index_rate * apart, flow.chunk_bytes)) /
                        apart;
  reading.payload_bytes = flow.bytes_per_s + index_rate;
  reading.read_bytes = reading.payload_bytes +
                       reading.chunk_reads * static_cast<double>(cache::layout::kBucketBytes +
                                                                 cache::layout::kEntryHeaderBytes);
  reading.value_reads = round_s > 0 ? 1 / round_s : flow.rings / apart;
  return reading;
}

Writing WritingOf(const ShardFlow& flow) {
  const double index_rate = IndexRate(flow);
  return {.chunk_writes = (ChunksOf(flow.bytes_per_s * flow.flush_s, flow.chunk_bytes) +
                           ChunksOf(index_rate * flow.flush_s, flow.chunk_bytes)) /
                          flow.flush_s,
          .length_writes = 1 / flow.flush_s,
          .payload_bytes = flow.bytes_per_s + index_rate};
}

}  // namespace tailcast::scale
