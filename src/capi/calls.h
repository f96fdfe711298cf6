// What every call of the C ABI does around its work: errors become codes and the thread's message,
// and no exception leaves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/capi/tailcast.h"
#include "tailcast/stream/position.h"

namespace tailcast::capi {

// Keeps the message for tailcast_last_error.
tailcast_code Finish(const Status& status);

// Runs `work`, which returns a Status.
template <typename Work>
tailcast_code Call(Work&& work) {
  try {
    return Finish(std::forward<Work>(work)());
  } catch (const std::bad_alloc&) {
    return Finish(ResourceExhaustedError("out of memory"));
  } catch (const std::exception& e) {
    return Finish(InternalError(e.what()));
  }
}

// InvalidArgument that names the argument if the pointer is null.
inline Status Needed(const void* pointer, const char* name) {
  if (pointer != nullptr) return OkStatus();
  return InvalidArgumentError(std::string(name) + " is null");
}

// Of milliseconds; what is negative is none.
Duration ToTimeout(int64_t ms);
// InvalidArgument unless the number is one of 0 to `last`.
Status Within(int32_t value, int32_t last, const char* name);
Result<std::vector<int32_t>> ToShards(const int32_t* shards, size_t count);
// As many as there is room for; returns how many there are.
size_t CopyShards(const std::vector<int32_t>& from, int32_t* to, size_t capacity);

tailcast_position ToC(const stream::Position& position);
stream::Position FromC(const tailcast_position& position);

inline Status NoSize(const char* name) {
  return InvalidArgumentError(std::string(name) + ": struct_size is 0; begin with its _INIT macro");
}

// A caller's structure of which this library knows `sizeof(T)` bytes and the caller, who was
// perhaps compiled against another header, `struct_size`: members beyond either are 0, or left
// alone.
//   InvalidArgument  null, or no size: the _INIT macro was not used
template <typename T>
Result<T> Read(const T* given, const char* name) {
  TAILCAST_RETURN_IF_ERROR(Needed(given, name));
  if (given->struct_size < sizeof(given->struct_size)) return NoSize(name);
  T known{};
  std::memcpy(&known, given, std::min(given->struct_size, sizeof known));
  return known;
}
template <typename T>
Status Write(T value, T* out, const char* name) {
  TAILCAST_RETURN_IF_ERROR(Needed(out, name));
  if (out->struct_size < sizeof(out->struct_size)) return NoSize(name);
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(out->struct_size, sizeof value));
  return OkStatus();
}

}  // namespace tailcast::capi
