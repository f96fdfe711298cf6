#include "tailcast/consumer/consumer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/capi/calls.h"
#include "tailcast/capi/tailcast.h"
#include "tailcast/consumer/shard_status.h"
#include "tailcast/consumer/start_point.h"
#include "tailcast/stream/position.h"

struct tailcast_consumer {
  std::unique_ptr<tailcast::consumer::Consumer> library;
  std::vector<tailcast_message> batch;
  std::vector<tailcast_header> headers;  // of all of them
  std::atomic<bool> in_use = false;
};

namespace tailcast::capi {
namespace {

Result<consumer::StartPoint> ToStart(const char* text, const char* name) {
  TAILCAST_RETURN_IF_ERROR(Needed(text, name));
  auto start = consumer::StartPoint::Parse(text);
  if (!start.ok()) return start.status().WithContext(name);
  return start;
}

consumer::FabricPreference ToFabric(int32_t fabric) {
  switch (fabric) {
    case TAILCAST_FABRIC_SHM:
      return consumer::FabricPreference::kShm;
    case TAILCAST_FABRIC_TCP:
      return consumer::FabricPreference::kTcp;
    case TAILCAST_FABRIC_VERBS:
      return consumer::FabricPreference::kVerbs;
    default:
      return consumer::FabricPreference::kAuto;
  }
}

Result<consumer::Options> ToOptions(const tailcast_consumer_options* given) {
  TAILCAST_ASSIGN_OR_RETURN(const tailcast_consumer_options in, Read(given, "options"));
  TAILCAST_RETURN_IF_ERROR(Needed(in.cell, "options.cell"));
  TAILCAST_RETURN_IF_ERROR(Needed(in.stream, "options.stream"));
  consumer::Options out;
  out.cell = in.cell;
  out.stream = in.stream;
  TAILCAST_ASSIGN_OR_RETURN(out.shards, ToShards(in.shards, in.shard_count));
  TAILCAST_RETURN_IF_ERROR(Within(in.profile, TAILCAST_PROFILE_LOW_LATENCY, "options.profile"));
  if (in.profile == TAILCAST_PROFILE_LOW_LATENCY) out.profile = consumer::Profile::kLowLatency;
  TAILCAST_RETURN_IF_ERROR(Within(in.fabric, TAILCAST_FABRIC_VERBS, "options.fabric"));
  out.fabric = ToFabric(in.fabric);
  if (in.start != nullptr) {
    TAILCAST_ASSIGN_OR_RETURN(out.start, ToStart(in.start, "options.start"));
  }
  if (in.resume_count > 0) TAILCAST_RETURN_IF_ERROR(Needed(in.resume, "options.resume"));
  for (size_t i = 0; i < in.resume_count; ++i) out.resume.push_back(FromC(in.resume[i]));
  if (in.rate_bytes_per_s < -1 || in.batch_bytes_max < 0 || in.open_timeout_ms < 0) {
    return InvalidArgumentError(
        "options: rate_bytes_per_s (-1: no limit), batch_bytes_max or open_timeout_ms is negative");
  }
  if (in.rate_bytes_per_s != 0) out.rate_bytes_per_s = std::max<int64_t>(0, in.rate_bytes_per_s);
  if (in.batch_bytes_max != 0) out.batch_bytes_max = in.batch_bytes_max;
  if (in.open_timeout_ms != 0) out.open_timeout = ToTimeout(in.open_timeout_ms);
  if (in.report_as != nullptr) {
    out.report_as = in.report_as;
    if (out.report_as.empty()) {
      return InvalidArgumentError("options.report_as: the name is empty; null: it is not shown");
    }
  }
  return out;
}

// Runs `work` on the consumer's library, for one thread at a time.
template <typename Work>
tailcast_code Use(tailcast_consumer* consumer, Work&& work) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(consumer, "consumer"));
    if (consumer->in_use.exchange(true, std::memory_order_acquire)) {
      return FailedPreconditionError(
          "another thread is inside a call of this consumer; each thread takes one of its own");
    }
    const auto done = [](std::atomic<bool>* in_use) {
      in_use->store(false, std::memory_order_release);
    };
    const std::unique_ptr<std::atomic<bool>, decltype(done)> release(&consumer->in_use, done);
    return std::forward<Work>(work)(*consumer->library);
  });
}

}  // namespace
}  // namespace tailcast::capi

using namespace tailcast;  // NOLINT(google-build-using-namespace): what follows has no namespace
using namespace tailcast::capi;  // NOLINT(google-build-using-namespace)

static_assert(TAILCAST_LOCATING == static_cast<int>(consumer::ShardState::kLocating));
static_assert(TAILCAST_WAITING == static_cast<int>(consumer::ShardState::kWaiting));
static_assert(TAILCAST_TAILING == static_cast<int>(consumer::ShardState::kTailing));
static_assert(TAILCAST_QUIET == static_cast<int>(consumer::ShardState::kQuiet));
static_assert(TAILCAST_STUCK == static_cast<int>(consumer::ShardState::kStuck));
static_assert(TAILCAST_STOPPED == static_cast<int>(consumer::ShardState::kFailed));

tailcast_code tailcast_consumer_open(const tailcast_consumer_options* options,
                                     tailcast_consumer** consumer) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(consumer, "consumer"));
    TAILCAST_ASSIGN_OR_RETURN(const consumer::Options read, ToOptions(options));
    TAILCAST_ASSIGN_OR_RETURN(auto opened, consumer::Consumer::Open(read));
    *consumer = new tailcast_consumer{std::move(opened), {}, {}};
    return OkStatus();
  });
}

void tailcast_consumer_free(tailcast_consumer* consumer) { delete consumer; }

tailcast_code tailcast_consumer_poll(tailcast_consumer* consumer, int64_t timeout_ms,
                                     const tailcast_message** messages, size_t* count) {
  return Use(consumer, [&](consumer::Consumer& library) -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(messages, "messages"));
    TAILCAST_RETURN_IF_ERROR(Needed(count, "count"));
    TAILCAST_ASSIGN_OR_RETURN(const std::span<const consumer::Message> batch,
                              library.Poll(ToTimeout(timeout_ms)));
    consumer->batch.clear();
    consumer->batch.reserve(batch.size());
    consumer->headers.clear();
    for (const consumer::Message& message : batch) {
      const size_t before = consumer->headers.size();
      for (const auto& [name, value] : message.headers) {
        consumer->headers.push_back({.name = name.data(),
                                     .name_size = name.size(),
                                     .value = value.data(),
                                     .value_size = value.size()});
      }
      consumer->batch.push_back({.payload = message.payload.data(),
                                 .size = message.payload.size(),
                                 .time_us = message.time_us,
                                 .position = ToC(library.PositionOf(message)),
                                 .headers = nullptr,
                                 .header_count = consumer->headers.size() - before,
                                 .next_byte = message.end_byte()});
    }
    // They stay where they are from now on.
    const tailcast_header* headers = consumer->headers.data();
    for (tailcast_message& message : consumer->batch) {
      if (message.header_count == 0) continue;
      message.headers = headers;
      headers += message.header_count;
    }
    *messages = consumer->batch.data();
    *count = consumer->batch.size();
    return OkStatus();
  });
}

tailcast_code tailcast_consumer_position(tailcast_consumer* consumer, int32_t shard,
                                         tailcast_position* position) {
  return Use(consumer, [&](consumer::Consumer& library) -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(position, "position"));
    if (const auto at = library.position(shard)) {
      *position = ToC(*at);
      return OkStatus();
    }
    const consumer::ShardStatus status = library.shard_status(shard);
    if (!status.error.ok()) return status.error;
    return UnavailableError("where shard " + std::to_string(shard) + " begins is not known yet");
  });
}

tailcast_code tailcast_consumer_seek(tailcast_consumer* consumer, int32_t shard,
                                     const char* start) {
  return Use(consumer, [&](consumer::Consumer& library) -> Status {
    TAILCAST_ASSIGN_OR_RETURN(const consumer::StartPoint to, ToStart(start, "start"));
    TAILCAST_RETURN_IF_ERROR(library.Seek(shard, to));
    consumer->batch.clear();
    return OkStatus();
  });
}

size_t tailcast_consumer_shards(tailcast_consumer* consumer, int32_t* shards, size_t capacity) {
  return consumer == nullptr ? 0 : CopyShards(consumer->library->shards(), shards, capacity);
}

tailcast_code tailcast_consumer_shard_status(tailcast_consumer* consumer, int32_t shard,
                                             tailcast_shard_status* status) {
  return Use(consumer, [&](consumer::Consumer& library) -> Status {
    const auto& shards = library.shards();
    const consumer::ShardStatus now = library.shard_status(shard);
    if (std::find(shards.begin(), shards.end(), shard) == shards.end()) return now.error;
    return Write({.struct_size = 0,
                  .state = static_cast<int32_t>(now.state),
                  .code = static_cast<tailcast_code>(now.error.code()),
                  .lag_bytes = now.lag_bytes,
                  .as_of_us = now.as_of.micros(),
                  .has_first_available = now.first_available ? 1 : 0,
                  .first_available = ToC(now.first_available.value_or(stream::Position()))},
                 status, "status");
  });
}

tailcast_code tailcast_consumer_get_stats(tailcast_consumer* consumer,
                                          tailcast_consumer_stats* stats) {
  return Use(consumer, [&](consumer::Consumer& library) -> Status {
    const consumer::Counters now = library.counters();
    return Write({.struct_size = 0,
                  .messages = now.messages,
                  .bytes = now.bytes,
                  .cache_bytes = now.cache_bytes,
                  .primary_bytes = now.primary_bytes},
                 stats, "stats");
  });
}
