#include "tailcast/producer/producer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/capi/calls.h"
#include "tailcast/capi/tailcast.h"
#include "tailcast/producer/ack.h"

struct tailcast_producer {
  std::unique_ptr<tailcast::producer::Producer> library;
};

namespace tailcast::capi {
namespace {

using producer::AckOutcome;

// 0 leaves the default.
Status Set(int64_t given, const char* name, int64_t& option) {
  if (given < 0) return InvalidArgumentError(std::string("options.") + name + " is negative");
  if (given > 0) option = given;
  return OkStatus();
}
Status Set(int64_t given_ms, const char* name, Duration& option) {
  int64_t ms = 0;
  TAILCAST_RETURN_IF_ERROR(Set(given_ms, name, ms));
  if (ms > 0) option = ToTimeout(ms);
  return OkStatus();
}

Result<producer::Options> ToOptions(const tailcast_producer_options* given) {
  TAILCAST_ASSIGN_OR_RETURN(const tailcast_producer_options in, Read(given, "options"));
  TAILCAST_RETURN_IF_ERROR(Needed(in.cell, "options.cell"));
  TAILCAST_RETURN_IF_ERROR(Needed(in.stream, "options.stream"));
  producer::Options out;
  out.cell = in.cell;
  out.stream = in.stream;
  TAILCAST_ASSIGN_OR_RETURN(out.shards, ToShards(in.shards, in.shard_count));
  TAILCAST_RETURN_IF_ERROR(Within(in.profile, TAILCAST_PROFILE_LOW_LATENCY, "options.profile"));
  if (in.profile == TAILCAST_PROFILE_LOW_LATENCY) out.profile = producer::Profile::kLowLatency;
  out.takeover = in.takeover != 0;
  TAILCAST_RETURN_IF_ERROR(Set(in.flush_interval_ms, "flush_interval_ms", out.flush_interval));
  TAILCAST_RETURN_IF_ERROR(Set(in.flush_bytes, "flush_bytes", out.flush_bytes));
  TAILCAST_RETURN_IF_ERROR(Set(in.buffer_bytes_max, "buffer_bytes_max", out.buffer_bytes_max));
  TAILCAST_RETURN_IF_ERROR(
      Set(in.buffer_messages_max, "buffer_messages_max", out.buffer_messages_max));
  TAILCAST_RETURN_IF_ERROR(Set(in.message_bytes_max, "message_bytes_max", out.message_bytes_max));
  TAILCAST_RETURN_IF_ERROR(Set(in.open_timeout_ms, "open_timeout_ms", out.open_timeout));
  TAILCAST_RETURN_IF_ERROR(Set(in.give_up_ms, "give_up_ms", out.give_up));
  TAILCAST_RETURN_IF_ERROR(Set(in.publish_timeout_ms, "publish_timeout_ms", out.publish_timeout));
  if (in.on_trouble != nullptr) {
    out.on_trouble = [call = in.on_trouble, context = in.on_trouble_context](const Status& why) {
      call(context, static_cast<tailcast_code>(why.code()), why.message().c_str());
    };
  }
  return out;
}

producer::AckCallback ToCallback(tailcast_on_ack on_ack, void* context) {
  if (on_ack == nullptr) return {};
  return [on_ack, context](const producer::Ack& ack) {
    const tailcast_ack out = {.outcome = static_cast<int32_t>(ack.outcome),
                              .code = static_cast<tailcast_code>(ack.error.code()),
                              .position = ToC(ack.position),
                              .error = ack.error.message().c_str()};
    on_ack(context, &out);
  };
}

Result<std::string_view> ToBytes(const void* bytes, size_t size, const char* name) {
  if (bytes == nullptr && size > 0) return InvalidArgumentError(std::string(name) + " is null");
  return std::string_view(static_cast<const char*>(bytes), size);
}

Result<std::vector<stream::Header>> ToHeaders(const tailcast_header* headers, size_t count) {
  if (count > 0) TAILCAST_RETURN_IF_ERROR(Needed(headers, "headers"));
  std::vector<stream::Header> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    stream::Header& header = out.emplace_back();
    TAILCAST_ASSIGN_OR_RETURN(header.name,
                              ToBytes(headers[i].name, headers[i].name_size, "a header's name"));
    TAILCAST_ASSIGN_OR_RETURN(header.value,
                              ToBytes(headers[i].value, headers[i].value_size, "a header's value"));
  }
  return out;
}

}  // namespace
}  // namespace tailcast::capi

using namespace tailcast;  // NOLINT(google-build-using-namespace): what follows has no namespace
using namespace tailcast::capi;  // NOLINT(google-build-using-namespace)

static_assert(TAILCAST_DURABLE == static_cast<int>(producer::AckOutcome::kDurable));
static_assert(TAILCAST_FAILED == static_cast<int>(producer::AckOutcome::kFailed));
static_assert(TAILCAST_UNKNOWN == static_cast<int>(producer::AckOutcome::kUnknown));

tailcast_code tailcast_producer_open(const tailcast_producer_options* options,
                                     tailcast_producer** producer) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    TAILCAST_ASSIGN_OR_RETURN(const producer::Options read, ToOptions(options));
    TAILCAST_ASSIGN_OR_RETURN(auto opened, producer::Producer::Open(read));
    *producer = new tailcast_producer{std::move(opened)};
    return OkStatus();
  });
}

void tailcast_producer_free(tailcast_producer* producer) { delete producer; }

tailcast_code tailcast_producer_publish(tailcast_producer* producer, int32_t shard,
                                        const void* payload, size_t size,
                                        const tailcast_header* headers, size_t header_count,
                                        tailcast_on_ack on_ack, void* context) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    TAILCAST_ASSIGN_OR_RETURN(const std::string_view bytes, ToBytes(payload, size, "payload"));
    TAILCAST_ASSIGN_OR_RETURN(const auto with, ToHeaders(headers, header_count));
    return producer->library->Publish(bytes, ToCallback(on_ack, context), shard, with);
  });
}

tailcast_code tailcast_producer_try_publish(tailcast_producer* producer, int32_t shard,
                                            const void* payload, size_t size,
                                            const tailcast_header* headers, size_t header_count,
                                            tailcast_on_ack on_ack, void* context) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    TAILCAST_ASSIGN_OR_RETURN(const std::string_view bytes, ToBytes(payload, size, "payload"));
    TAILCAST_ASSIGN_OR_RETURN(const auto with, ToHeaders(headers, header_count));
    return producer->library->TryPublish(bytes, ToCallback(on_ack, context), shard, with);
  });
}

tailcast_code tailcast_producer_publish_durably(tailcast_producer* producer, int32_t shard,
                                                const void* payload, size_t size,
                                                const tailcast_header* headers, size_t header_count,
                                                tailcast_position* position, int32_t* unknown) {
  return Call([&]() -> Status {
    if (unknown != nullptr) *unknown = 0;
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    TAILCAST_ASSIGN_OR_RETURN(const std::string_view bytes, ToBytes(payload, size, "payload"));
    TAILCAST_ASSIGN_OR_RETURN(const auto with, ToHeaders(headers, header_count));
    const producer::Ack ack = producer->library->Publish(bytes, shard, with);
    if (unknown != nullptr) *unknown = ack.outcome == AckOutcome::kUnknown ? 1 : 0;
    if (ack.outcome != AckOutcome::kDurable) return ack.error;
    if (position != nullptr) *position = ToC(ack.position);
    return OkStatus();
  });
}

int32_t tailcast_producer_shard_of(const tailcast_producer* producer, const void* key,
                                   size_t size) {
  if (producer == nullptr || (key == nullptr && size > 0)) return -1;
  return producer->library->ShardOf(std::string_view(static_cast<const char*>(key), size));
}

size_t tailcast_producer_shards(const tailcast_producer* producer, int32_t* shards,
                                size_t capacity) {
  return producer == nullptr ? 0 : CopyShards(producer->library->shards(), shards, capacity);
}

tailcast_code tailcast_producer_flush(tailcast_producer* producer, int64_t timeout_ms) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    return producer->library->Flush(ToTimeout(timeout_ms));
  });
}

tailcast_code tailcast_producer_close(tailcast_producer* producer, int64_t timeout_ms) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    return producer->library->Close(ToTimeout(timeout_ms));
  });
}

tailcast_code tailcast_producer_status(const tailcast_producer* producer) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    return producer->library->status();
  });
}

tailcast_code tailcast_producer_get_stats(const tailcast_producer* producer,
                                          tailcast_producer_stats* stats) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(producer, "producer"));
    const producer::Stats now = producer->library->stats();
    return Write({.struct_size = 0,
                  .messages = now.messages,
                  .bytes = now.bytes,
                  .durable = now.durable,
                  .failed = now.failed,
                  .unknown = now.unknown,
                  .buffered_bytes = now.buffered_bytes},
                 stats, "stats");
  });
}
