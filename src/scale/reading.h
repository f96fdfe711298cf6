// What one consumer asks of its cell's caches for one shard, on average, while it keeps up; and
// what the producer or the writers ask that fill them. Arithmetic of what consumer/lengths_core.h,
// consumer/tail_core.h and stream/chunk_writer_core.h decide; agents.h shows whether it is right.
#pragma once

namespace tailcast::scale {

// One shard of a stream.
struct ShardFlow {
  double bytes_per_s = 0;  // of payload
  double message_bytes = 0;
  double flush_s = 0.1;  // bytes come together, so often
  double chunk_bytes = 4096;
  // A doorbell rings so often for each flush: once in the source's cell, where everything is
  // published together; in others once for either file in either layer.
  double rings = 1;
};

// For each second.
struct Reading {
  double rounds = 0;         // looks at the lengths that brought news
  double value_reads = 0;    // of lengths
  double chunk_reads = 0;    // of the data and the index file
  double payload_bytes = 0;  // of both
  double read_bytes = 0;     // of the data servers' memory: with what each look-up reads
};
// With a look at the lengths every `round_s`; 0: whenever a doorbell rings.
Reading ReadingOf(const ShardFlow& flow, double round_s);

struct Writing {
  double chunk_writes = 0;   // keys, not copies
  double length_writes = 0;  // keys
  double payload_bytes =
      0;  // of both files, before copying; chunks are written as far as they are filled
};
Writing WritingOf(const ShardFlow& flow);

}  // namespace tailcast::scale
