// The consumer of one shard on an event loop (paper §2.4 Consumers): finds its place, polls lengths
// or waits at a doorbell, reads chunks out of order, checks everything and hands messages over in
// order, from file to file. The user's library around it is consumer.h; the deterministic world
// runs this class as it is.
//
// The user pulls: Take gives what is ready as views into the agent's own memory; Release says that
// the views are not used any more. Nothing is fetched for a user who does not take.
//
// Invariants (design rule "in order"): what Take gave, end to end, is a prefix of what the producer
// committed from the start position on; no byte twice; a message is given only when its index
// record and its payload passed their check sums and lie where the previous one ended; nothing at
// or beyond a file's seal is given.
//
// Threads: all calls and callbacks on the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"
#include "tailcast/consumer/delayed_read_core.h"
#include "tailcast/consumer/rate_limiter.h"
#include "tailcast/consumer/tail_buffer.h"
#include "tailcast/stream/chunk_key.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/position.h"
#include "tailcast/stream/range_reader.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::consumer {

// Where to begin. Beginning: the oldest message that the cell keeps. End: behind the newest one.
// Time: the first message with that producer's time or a later one. Position: exactly there,
// waiting for it if the cell has not got so far.
struct StartPoint {
  enum class Kind : uint8_t { kBeginning, kEnd, kTime, kPosition };
  Kind kind = Kind::kBeginning;
  WallTime time;
  stream::Position position;

  static StartPoint Beginning() { return {}; }
  static StartPoint End() { return {.kind = Kind::kEnd}; }
  static StartPoint At(WallTime time) { return {.kind = Kind::kTime, .time = time}; }
  static StartPoint At(const stream::Position& position) {
    return {.kind = Kind::kPosition, .position = position};
  }
  // "beginning", "end", "time:<microseconds since 1970, or 2013-01-31T12:00:00Z>", or a position.
  static Result<StartPoint> Parse(std::string_view text);
};

struct Message {
  std::string_view payload;
  int64_t number = 0;   // of the message in its shard, from 0
  int64_t byte = 0;     // data bytes of the shard before it
  int64_t time_us = 0;  // producer's wall time
  int32_t shard = 0;
};

// Bugs that tests plant: a checker is trusted only after it has caught them.
enum class PlantedBug : uint8_t {
  kNone,
  kSkipPayloadCheck,      // payloads are given without their check sum
  kSkipRecordAtRollOver,  // the next file is begun at its second record
  kSkipHole,              // the file after a missing one is read instead
  kKeepViewsUnpinned,     // memory that the user has views of is written again
  kDeliverOverHole,       // payload bytes that the cache lacks are not read, but given
};

struct AgentOptions {
  // How often lengths are polled. With `doorbell` a watch on the lengths replaces the polls, and
  // this is what is done where nobody can watch.
  Duration poll = Duration::Millis(100);
  bool doorbell = false;
  // With doorbell: notifications closer than this are taken together.
  Duration doorbell_pause = Duration::Millis(0);
  // How often the primary layer itself is asked for lengths: the fallback when the metadata cache
  // is away, and how a stream is found whose lengths nobody published.
  Duration primary_poll = Duration::Seconds(1);
  // Algorithm 1's maxDelay.
  Duration delay_max = Duration::Seconds(1);
  // Passive rate limit, bytes per second of data; 0: none. `rate_burst_bytes` may come at once.
  int64_t rate_bytes_per_s = 0;
  int64_t rate_burst_bytes = 64 << 20;
  // Data bytes that one fetch asks for; also what is kept in memory besides the largest message.
  int64_t window_bytes = 256 << 10;
  // A message over this is taken for corruption (DataLoss).
  int64_t message_bytes_max = 256 << 20;
  // Chunk size of files whose metadata is not (yet) known.
  int64_t chunk_size = 4096;
  // A heartbeat older than this, with nothing new, is a stuck path and not a quiet producer.
  Duration stuck_after = Duration::Seconds(5);
  Duration cache_timeout = Duration::Millis(250);
  PlantedBug bug = PlantedBug::kNone;  // for tests
};

enum class AgentState : uint8_t {
  kLocating,  // finding the start point
  kWaiting,   // the start point, or the next file, is not here yet
  kTailing,   // messages flow
  kQuiet,     // nothing new, and the heartbeat says that this is all there is
  kStuck,     // nothing new, and no heartbeat: the path from the producer is cut
  kFailed,    // see status()
};
std::string_view AgentStateName(AgentState state);

// Each cause on its own (design rule "nothing silent"). Bytes count data and index.
struct AgentCounters {
  int64_t messages = 0, bytes = 0;  // delivered payloads
  int64_t cache_bytes = 0, primary_bytes = 0;
  int64_t fetches = 0;
  int64_t polls = 0, poll_failures = 0;  // of the metadata cache
  int64_t notifications = 0, refused_watches = 0;
  int64_t metadata_unknown = 0;  // the metadata cache knew nothing of the file
  int64_t primary_size_polls = 0;
  int64_t fallback_missing_chunk = 0;  // primary reads because chunks were missing
  int64_t fallback_delayed = 0;        // because Algorithm 1 found the cache delayed
  int64_t fallback_no_metadata = 0;    // because the cache layer's length was not known
  int64_t fallback_corrupt = 0;        // because bytes of the cache failed their check
  int64_t primary_errors = 0;
  int64_t short_reads = 0;                       // neither layer had what a length promised
  int64_t short_chunks = 0, missing_chunks = 0;  // of the cache
  int64_t rate_limited = 0;                      // fetches that waited for the rate limit
  int64_t roll_overs = 0;
  int64_t listings = 0;
  int64_t hole_waits = 0;  // a later file is there, the next one is not
};

class ConsumerAgent {
 public:
  // `on_ready` is called in a turn of its own when Take would give something new, or the state
  // became kFailed; once, until the next Take.
  ConsumerAgent(const stream::CellPorts& ports, stream::ShardId shard, AgentOptions options,
                Callback<void()> on_ready);
  ~ConsumerAgent();
  ConsumerAgent(const ConsumerAgent&) = delete;
  ConsumerAgent& operator=(const ConsumerAgent&) = delete;

  void Start(const StartPoint& start);

  // Adds the messages that are ready to `out`, at most about `bytes_max` of payload (at least one
  // if there is one), and returns how many. Their views are valid until Release.
  size_t Take(std::vector<Message>& out, int64_t bytes_max);
  // The user is done with all views; what comes next may be fetched over them.
  void Release();
  bool ready() const;

  AgentState state() const;
  // kFailed:
  //   OutOfRange       the start position lies before what the cell keeps: the message says where
  //                    that begins, as does first_available()
  //   DataLoss         bytes contradict their check sums in the primary layer too: names file, part
  //                    and position
  //   InvalidArgument  a position of another stream or shard, or one that is no message's beginning
  const Status& status() const { return status_; }
  std::optional<stream::Position> first_available() const { return first_available_; }

  // Behind the last message that Take gave (before the first: where it begins). nullopt until
  // located.
  std::optional<stream::Position> position() const;
  // Data bytes of the current file that are known to exist and were not given yet: the lag, as far
  // as this cell knows.
  int64_t lag_bytes() const;
  // Why bytes that are said to be there could not be read at the last try; Ok when they could. Not
  // an end: it is tried again for as long as it takes, and a copy that is on its way heals it.
  const Status& trouble() const { return trouble_[0].ok() ? trouble_[1] : trouble_[0]; }
  // Heartbeat of the current file: the producer's side was alive and had published everything then.
  // 0: not known.
  WallTime as_of() const;
  // File, lengths and what it waits for, in one line for people.
  std::string DebugString() const;
  const AgentCounters& counters() const { return counters_; }
  const stream::ShardId& shard() const { return shard_; }

 private:
  struct File;
  struct Locator;

  // Finding the start.
  void Locate();
  void LocateAgain();
  void OnListed(const std::vector<storage::DirEntry>& entries);
  void OnListedMetadata();
  void SearchFile();
  void SearchStep();
  void OnSearchRecord(const stream::IndexRecord& record);
  void FoundInIndex(int64_t index_at, int64_t data_at);
  void OpenFile(const stream::Stem& stem, int64_t index_at, int64_t data_at);
  // Lengths.
  void Wake();
  void Arm(Duration delay);
  void PollLengths();
  void OnMetadata(const stream::PairMetadata& metadata, const stream::PairMetadata& next);
  void LengthsChanged();
  void PollPrimary();
  void Watch();
  // Bytes.
  void Round();
  void LogLengths(int part);
  bool Fetch(stream::Part part);
  void OnFetched(stream::Part part, const stream::RangeResult& result);
  // Bytes up to `end` of the part, from what was given on, contradict a check.
  void OnCorrupt(stream::Part part, int64_t end, const std::string& what);
  // Files.
  void AdvanceFile();
  void FindNextFile();
  void Fail(Status status);
  void SignalReady();
  std::optional<stream::Stem> NextStem() const;

  const stream::CellPorts ports_;
  const stream::ShardId shard_;
  const AgentOptions options_;
  Callback<void()> on_ready_;
  const std::string dir_;
  const stream::KeyMaker keys_;
  const std::string step_name_;  // in the log of steps

  bool failed_ = false;
  Status status_;
  Status trouble_[stream::kParts];
  StartPoint start_;
  std::unique_ptr<Locator> locator_;
  std::unique_ptr<File> file_;
  TailBuffer buffers_[stream::kParts];
  RateLimiter rate_;
  std::optional<stream::Position> first_available_;
  bool views_out_ = false;
  bool signalled_ = false;
  bool in_round_ = false;
  AgentCounters counters_;
  TimerId timer_ = 0;
  MonotonicTime timer_at_;
  uint64_t watch_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tailcast::consumer
