// tailcast::consumer::Consumer: reads the shards of a stream in the cell that it runs in.
//
//   tailcast::consumer::Options options;
//   options.cell = "10.3.0.7:7400";       // the scheduler of this consumer's cell
//   options.stream = "flights";
//   options.start = *StartPoint::Parse("beginning");
//   auto consumer = tailcast::consumer::Consumer::Open(options);
//   if (!consumer.ok()) ...
//   for (;;) {
//     auto batch = (*consumer)->Poll(Duration::Seconds(1));
//     if (!batch.ok()) ...
//     for (const Message& m : *batch) Apply(m.payload);
//     Save((*consumer)->position(0)->ToString());   // resume here, in this or any other cell
//   }
//
// Messages of a shard come in the order in which they were published, each exactly once within a
// run.
//
// Threads: one at a time. There is no thread behind it: Poll does the work on the caller's thread,
// and between polls nothing is fetched.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/consumer/counters.h"
#include "tailcast/consumer/message.h"
#include "tailcast/consumer/shard_status.h"
#include "tailcast/consumer/start_point.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"

namespace tailcast::consumer {

enum class Profile : uint8_t {
  kDefault,     // lengths are polled every 100 ms
  kLowLatency,  // a doorbell on the lengths
};
enum class FabricPreference : uint8_t {
  kAuto,  // shared memory on the cache server's own host, else RDMA where both have it, else tcp
  kShm,
  kTcp,
  kVerbs,  // RDMA
};

struct Options {
  std::string cell;  // host:port of the scheduler of the consumer's cell
  std::string stream;
  std::vector<int32_t> shards;  // empty: all
  StartPoint start;             // where shards begin that `resume` does not name
  std::vector<stream::Position> resume;
  Profile profile = Profile::kDefault;
  FabricPreference fabric = FabricPreference::kAuto;
  int64_t rate_bytes_per_s = 400'000'000;  // of each shard; 0: no limit
  // About how many bytes of messages one Poll gives.
  int64_t batch_bytes_max = 1 << 20;
  Duration open_timeout = Duration::Seconds(30);
  // Whether what it does counts in the process' metrics (docs/metrics.md).
  bool show_metrics = true;
  // Not empty: tells the cell's scheduler every 10 s, inside Poll, that it is there and how far it
  // is, for `tailcast status` to show under this name: up to 100 bytes of UTF-8, one line. The cell
  // keeps the 1000 that it heard last, for 30 s.
  std::string report_as;
};

class Consumer {
 public:
  //   NotFound         no such stream (with the nearest name)
  //   InvalidArgument  a shard that the stream has not, a position of another stream, report_as,
  //                   a cell that is no host:port
  //   Unavailable      the cell does not answer at this address
  static Result<std::unique_ptr<Consumer>> Open(const Options& options);
  ~Consumer();

  // Waits until messages are there, at most `timeout`, and gives them; none when the time is up.
  // The messages' bytes are valid until the next call of Poll, Seek or the destructor. An error is
  // of one shard (it names it) and is given again by every later Poll until that shard is sought
  // elsewhere:
  //   OutOfRange, DataLoss, InvalidArgument, NotFound   as ShardStatus::error
  // Messages that were ready come before the error.
  Result<std::span<const Message>> Poll(Duration timeout);
  // Callback form: gives each batch to `on_batch` until it returns false (Ok) or an error comes. An
  // empty batch every `idle`, so that the callback can end it.
  Status Run(UniqueFunction<bool(std::span<const Message>)> on_batch,
             Duration idle = Duration::Millis(500));

  // Behind the last message given by Poll. nullopt until the shard's start was located, and for
  // shards that are not consumed. Whatever is published from then on comes, `end` included: that of
  // a shard without messages is its message 0.
  std::optional<stream::Position> position(int32_t shard) const;
  // Where a message that was given begins: a consumer that starts there gets it first. And where
  // the next one does: save this when the message was dealt with.
  stream::Position PositionOf(const Message& message) const;
  stream::Position PositionBehind(const Message& message) const;
  // Goes on elsewhere, also after an error of the shard.
  Status Seek(int32_t shard, const StartPoint& start);

  const stream::StreamId& stream() const;
  const std::vector<int32_t>& shards() const;
  // As of the last Poll. Of a shard that is not consumed: kFailed, with InvalidArgument.
  ShardStatus shard_status(int32_t shard) const;
  // Unavailable while the cell's scheduler does not answer, as of the last Poll: messages come from
  // its caches and files all the same, if they are there. Whether there are more nobody says.
  Status contact() const;
  // Of all shards.
  Counters counters() const;
  // Bytes that were read of cache servers' memory for this consumer, lengths and look-ups included.
  int64_t remote_bytes_read() const;

 private:
  friend struct OnPorts;
  class Impl;
  explicit Consumer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailcast::consumer
