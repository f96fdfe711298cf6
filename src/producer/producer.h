// tailcast::producer::Producer: publishes messages to the shards of a stream.
//
//   tailcast::producer::Options options;
//   options.cell = "10.0.0.7:7400";          // the scheduler of the source cell
//   options.stream = "flights";
//   auto producer = tailcast::producer::Producer::Open(options);
//   if (!producer.ok()) ...
//   (*producer)->Publish("hello");                         // blocks until durable
//   (*producer)->Publish("hello", [](const Ack& ack) {});  // blocks only while the buffer is full
//   (*producer)->Publish("hello", {}, 0, std::vector<stream::Header>{{"trace", id}});
//   (*producer)->Flush(Duration::Seconds(10));
//   (*producer)->Close(Duration::Seconds(10));
//
// It tells the cell's scheduler every 10 s that it is there, for `tailcast status` to show.
//
// One process produces a shard at a time: a second one is refused unless it asks to take over, and
// the first then stops with an error and loses nothing that was acknowledged.
//
// Threads: every method from any thread, except the blocking ones, which must not be called from an
// acknowledgement. Acknowledgements run on the producer's own thread: keep them short. In
// the low-latency profile it runs before others where the process may set that (nice -10), and so
// do threads that are begun on it, and the session that the process leads, for good: the caller's
// threads as well, less so while it writes much (docs/caches.md, "Priority").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/producer/ack.h"
#include "tailcast/stream/message_headers.h"
#include "tailcast/stream/position.h"

namespace tailcast::producer {

// How long a flush waits at most for the one before it to have its quorum in the cache.
inline constexpr Duration kLowLatencyFlushInterval = Duration::Millis(2);

enum class Profile : uint8_t {
  kDefault,     // flush every 100 ms, as the paper's producers do: few, large flushes
  kLowLatency,  // flush again as soon as the last flush is durable and cached, or it is durable and
                // began kLowLatencyFlushInterval ago
};

inline constexpr Duration kTimeMax = Duration::Seconds(int64_t{7} * 24 * 3600);

struct Options {
  // host:port of the scheduler of the stream's source cell.
  std::string cell;
  std::string stream;
  // Shards to produce; empty: all of the stream.
  std::vector<int32_t> shards;
  Profile profile = Profile::kDefault;
  // A flush starts so long after the last one did. 0: the profile's.
  Duration flush_interval;
  int64_t flush_bytes = 1 << 20;
  // Of one shard's messages that wait for their acknowledgement.
  int64_t buffer_bytes_max = 32 << 20;
  int64_t buffer_messages_max = 1 << 18;
  int64_t message_bytes_max = 16 << 20;  // headers included
  // Of a message file, data and index; the stream may say otherwise (v1::Retention).
  int64_t roll_bytes = 256 << 20;
  Duration roll_age = Duration::Seconds(3600);
  bool takeover = false;
  // How long Publish and Append wait for room in a shard's buffer, after which they return
  // ResourceExhausted, with what stands against it: a slow or full primary layer, or a stream that
  // keeps what it may, for a cell that lacks it (policy block), or because its scheduler is away.
  // As long Publish waits for an outcome, which is unknown after that. 1 ms to kTimeMax; TryPublish
  // waits for nothing.
  Duration publish_timeout = Duration::Seconds(60);
  // How long Open tries to reach the cell, and waits for the shards. Up to kTimeMax.
  Duration open_timeout = Duration::Seconds(30);
  // How long a primary layer that answers with errors is tried again before the producer stops. One
  // that does not answer is waited for as long as it takes; Publish says so after publish_timeout.
  Duration give_up = Duration::Seconds(60);
  // Called when the primary layer begins to fail a shard, with what it says (a full disk: which,
  // and how much is free), once until a file could be opened again; of a shard that is at the limit
  // of its retention once until a file finds room without waiting. On the producer's thread, from
  // Open until Close has returned. May be empty.
  std::function<void(const Status&)> on_trouble;
};

struct Stats {
  int64_t messages = 0, bytes = 0;               // accepted; headers included
  int64_t durable = 0, failed = 0, unknown = 0;  // acknowledged
  int64_t flushes = 0, files_opened = 0, recoveries = 0;
  int64_t shadow_jumps = 0, shadow_failures = 0;
  // Chunks that the data cache was given, each counted once for its replicas: more than `bytes`,
  // because a chunk that fills over several flushes is written again with each.
  int64_t shadow_bytes = 0;
  int64_t buffered_bytes = 0;
};

class Producer {
 public:
  //   NotFound            no such stream (with the nearest name)
  //   InvalidArgument     a shard that the stream has not, an option out of range, a cell that is
  //                       no host:port
  //   Unavailable         the cell does not answer at this address
  //   PermissionDenied    the cell's folder can't be written
  //   FailedPrecondition  a shard has a live producer: the message says for how long and what to do
  static Result<std::unique_ptr<Producer>> Open(const Options& options);
  // Close(0) if that was not done.
  ~Producer();

  // Names and values that consumers get with a payload (stream/message_headers.h).
  using Headers = std::span<const stream::Header>;

  // Publishes and waits for the outcome, after Options::publish_timeout unknown with
  // ResourceExhausted.
  Ack Publish(std::string_view payload, int32_t shard = 0, Headers headers = {});
  // Publishes; waits only while the shard's buffer is full. Ok: `ack` will run, exactly once (it
  // may be empty). InvalidArgument: too large, headers that are none, or not a shard of ours.
  // FailedPrecondition: stopped or closed; the message says why. ResourceExhausted: no room came
  // within Options::publish_timeout; it says why.
  Status Publish(std::string_view payload, AckCallback ack, int32_t shard = 0,
                 Headers headers = {});
  // The same, to the shard of the key: messages of a key come in their order. The key is not kept:
  // what consumers are to know of it belongs in the payload or in a header.
  Ack Publish(std::string_view key, std::string_view payload);
  Status Publish(std::string_view key, std::string_view payload, AckCallback ack,
                 Headers headers = {});
  // As above, but ResourceExhausted instead of waiting.
  Status TryPublish(std::string_view payload, AckCallback ack, int32_t shard = 0,
                    Headers headers = {});
  // The shard of a key: the same one for ever, as long as the stream has as many shards
  // (stream/shard_of_key.h).
  int32_t ShardOf(std::string_view key) const;
  // Raw bytes without message boundaries.
  Status Append(std::string_view bytes, AckCallback ack, int32_t shard = 0);

  // Behind the last durable message of a shard of ours; before the first, where the shard ended
  // when it was opened: who keeps beside its input where that stood knows from this, after a crash,
  // what is in the stream already. Waits for the producer's thread. FailedPrecondition: closed.
  Result<stream::Position> durable_position(int32_t shard) const;

  // Waits until everything published before is acknowledged. DeadlineExceeded, with what the
  // primary layer says if it fails; the error of a shard that stopped.
  Status Flush(Duration timeout);
  // Flushes, seals the files, waits for the caches (2 s at most) and ends. Later calls fail, those
  // of other threads that are under way fail or were in time. A second call waits for the first
  // one, and returns what that one does; in a callback DeadlineExceeded at once, if it is not done.
  // The first one is not called in a callback.
  Status Close(Duration timeout);
  // The same, for who may want to leave sooner: asked every 50 ms, `hurry` says that the time is
  // up.
  Status Close(Duration timeout, const std::function<bool()>& hurry);

  const std::vector<int32_t>& shards() const;
  // Ok while all shards work; else why the first of them stopped: NotFound when the stream was
  // deleted. Any thread.
  Status status() const;
  Stats stats() const;

 private:
  friend struct OnPorts;
  class Impl;
  explicit Producer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailcast::producer
