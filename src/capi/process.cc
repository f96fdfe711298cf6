// What is of no handle: versions, errors, positions, the process.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/metrics_http.h"
#include "tailcast/capi/calls.h"
#include "tailcast/capi/tailcast.h"
#include "tailcast/stream/position.h"
#include "tailcast/stream/shard_of_key.h"

namespace tailcast::capi {
namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

tailcast_code Finish(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return static_cast<tailcast_code>(status.code());
}

Duration ToTimeout(int64_t ms) {
  return Duration::Millis(std::clamp<int64_t>(ms, 0, Duration::Infinite().millis()));
}

Status Within(int32_t value, int32_t last, const char* name) {
  if (value >= 0 && value <= last) return OkStatus();
  return InvalidArgumentError(std::string(name) + " is " + std::to_string(value) + "; use 0 to " +
                              std::to_string(last));
}

Result<std::vector<int32_t>> ToShards(const int32_t* shards, size_t count) {
  if (count > 0) TAILCAST_RETURN_IF_ERROR(Needed(shards, "options.shards"));
  return std::vector<int32_t>(shards, shards + count);
}

size_t CopyShards(const std::vector<int32_t>& from, int32_t* to, size_t capacity) {
  if (to != nullptr) std::copy_n(from.begin(), std::min(capacity, from.size()), to);
  return from.size();
}

tailcast_position ToC(const stream::Position& position) {
  return {.stream = static_cast<uint64_t>(position.incarnation),
          .number = position.number,
          .byte = position.byte,
          .shard = position.shard};
}

stream::Position FromC(const tailcast_position& position) {
  return {.incarnation = stream::StreamIncarnation{position.stream},
          .shard = position.shard,
          .number = position.number,
          .byte = position.byte};
}

}  // namespace tailcast::capi

using namespace tailcast;  // NOLINT(google-build-using-namespace): what follows has no namespace
using namespace tailcast::capi;  // NOLINT(google-build-using-namespace)

static_assert(TAILCAST_DATA_LOSS == static_cast<int>(StatusCode::kDataLoss));

int32_t tailcast_abi_version() { return TAILCAST_ABI_VERSION; }
const char* tailcast_version() { return TAILCAST_VERSION; }

const char* tailcast_code_name(tailcast_code code) {
  if (code < TAILCAST_OK || code > TAILCAST_DATA_LOSS || code == 2) return "?";
  return StatusCodeName(static_cast<StatusCode>(code)).data();
}

const char* tailcast_last_error() { return LastError().c_str(); }

tailcast_code tailcast_position_to_text(const tailcast_position* position,
                                        char text[TAILCAST_POSITION_TEXT_SIZE]) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(position, "position"));
    TAILCAST_RETURN_IF_ERROR(Needed(text, "text"));
    const std::string made = FromC(*position).ToString();
    // So that what was made up is refused here, and not where it is used.
    TAILCAST_RETURN_IF_ERROR(stream::Position::Parse(made).status());
    std::memcpy(text, made.c_str(), made.size() + 1);
    return OkStatus();
  });
}

tailcast_code tailcast_position_from_text(const char* text, tailcast_position* position) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(text, "text"));
    TAILCAST_RETURN_IF_ERROR(Needed(position, "position"));
    TAILCAST_ASSIGN_OR_RETURN(const stream::Position parsed, stream::Position::Parse(text));
    *position = ToC(parsed);
    return OkStatus();
  });
}

tailcast_code tailcast_position_behind(const tailcast_message* message,
                                       tailcast_position* position) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(message, "message"));
    TAILCAST_RETURN_IF_ERROR(Needed(position, "position"));
    *position = message->position;
    position->number += 1;
    position->byte = message->next_byte;
    return OkStatus();
  });
}

tailcast_code tailcast_serve_metrics(const char* address, int32_t* port) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(address, "address"));
    static std::mutex mutex;
    static MetricsServer* server = nullptr;  // until the process ends
    const std::lock_guard lock(mutex);
    if (server != nullptr) {
      return FailedPreconditionError("this process shows its metrics at port " +
                                     std::to_string(server->port()) + " already");
    }
    TAILCAST_ASSIGN_OR_RETURN(auto started, MetricsServer::Start(ProcessMetrics(), address));
    server = started.release();
    if (port != nullptr) *port = server->port();
    return OkStatus();
  });
}

tailcast_code tailcast_set_log_levels(const char* levels) {
  return Call([&]() -> Status {
    TAILCAST_RETURN_IF_ERROR(Needed(levels, "levels"));
    return SetLogLevels(levels);
  });
}

int32_t tailcast_shard_of_key(const void* key, size_t size, int32_t shards) {
  if (shards < 1 || (key == nullptr && size > 0)) return -1;
  return stream::ShardOfKey(std::string_view(static_cast<const char*>(key), size), shards);
}
