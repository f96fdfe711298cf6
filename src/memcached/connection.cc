#include "tailcast/memcached/connection.h"

#include <libmemcached-1.0/memcached.h>

#include <algorithm>
#include <utility>

namespace tailcast::memcached {
namespace {

// Their names fill a third of what libmemcached sends at once, so a server never waits for us to
// read its answer before it has read our question.
constexpr size_t kKeysPerGet = 64;

}  // namespace

Connection::Connection(ServerAddress address, Duration timeout)
    : address_(std::move(address)), timeout_(timeout) {
  SetTimeout(timeout);
}

Connection::~Connection() { Close(); }

void Connection::SetTimeout(Duration timeout) {
  timeout_ = std::max(timeout, Duration::Millis(1));
  if (handle_ == nullptr) return;
  const auto ms = static_cast<uint64_t>(timeout_.millis());
  memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, ms);
  memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, ms);
}

bool Connection::Open() {
  if (handle_ != nullptr) return true;
  handle_ = memcached_create(nullptr);
  if (handle_ == nullptr) {
    last_error_ = "no memory";
    last_failure_ = Failure::kUnreachable;
    return false;
  }
  proven_ = false;
  // Time-outs hold only for sockets that do not block.
  memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_NO_BLOCK, 1);
  memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
  memcached_behavior_set(handle_, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
  SetTimeout(timeout_);
  const memcached_return_t added =
      address_.port == 0 ? memcached_server_add_unix_socket(handle_, address_.host.c_str())
                         : memcached_server_add(handle_, address_.host.c_str(), address_.port);
  if (added == MEMCACHED_SUCCESS) return true;
  last_error_ = memcached_strerror(handle_, added);
  last_failure_ = Failure::kUnreachable;
  Close();
  return false;
}

void Connection::Close() {
  if (handle_ != nullptr) memcached_free(std::exchange(handle_, nullptr));
}

Connection::Failure Connection::FailureOf(int result) const {
  switch (static_cast<memcached_return_t>(result)) {
    case MEMCACHED_TIMEOUT:
      return Failure::kTimeout;
    case MEMCACHED_SERVER_ERROR:
    case MEMCACHED_CLIENT_ERROR:
      return Failure::kRefused;
    case MEMCACHED_HOST_LOOKUP_FAILURE:
    case MEMCACHED_CONNECTION_FAILURE:
    case MEMCACHED_CONNECTION_BIND_FAILURE:
    case MEMCACHED_CONNECTION_SOCKET_CREATE_FAILURE:
    case MEMCACHED_SERVER_MARKED_DEAD:
    case MEMCACHED_SERVER_TEMPORARILY_DISABLED:
      return proven_ ? Failure::kBroken : Failure::kUnreachable;
    default:
      return Failure::kBroken;
  }
}

// A connection that served before may have been closed by a server that restarted since; one that
// timed out was not.
bool Connection::Failed(int result) {
  auto code = static_cast<memcached_return_t>(result);
  // Of a question to all servers, although there is one.
  if (code == MEMCACHED_SOME_ERRORS && memcached_last_error(handle_) != MEMCACHED_SUCCESS) {
    code = memcached_last_error(handle_);
  }
  last_failure_ = FailureOf(code);
  last_error_ = last_failure_ == Failure::kUnreachable ? "no connection"
                : last_failure_ == Failure::kTimeout   ? "no answer in time"
                                                       : memcached_strerror(handle_, code);
  const bool again =
      proven_ && last_failure_ != Failure::kTimeout && last_failure_ != Failure::kRefused;
  Close();
  reconnections_ += again ? 1 : 0;
  return again;
}

int Connection::GetSome(std::span<const std::string> keys, std::vector<Item>& items) {
  std::vector<const char*> names;
  std::vector<size_t> sizes;
  for (const std::string& key : keys) {
    names.push_back(key.data());
    sizes.push_back(key.size());
  }
  memcached_return_t code = memcached_mget(handle_, names.data(), sizes.data(), names.size());
  if (code != MEMCACHED_SUCCESS) return code;
  memcached_result_st result;
  memcached_result_create(handle_, &result);
  // libmemcached says "not found" of an answer without values, also when it was an error or broke
  // off; it tells the truth once it believes that there was a value.
  result.count = 1;
  size_t next = 0;  // answers come in the order of the questions, absent ones are left out
  while (memcached_fetch_result(handle_, &result, &code) != nullptr) {
    const std::string_view name(memcached_result_key_value(&result),
                                memcached_result_key_length(&result));
    while (next < keys.size() && keys[next] != name) ++next;
    if (next == keys.size()) {  // nothing that was asked for
      memcached_result_free(&result);
      return MEMCACHED_PROTOCOL_ERROR;
    }
    items[next].bytes.emplace(memcached_result_value(&result), memcached_result_length(&result));
    items[next].version = memcached_result_cas(&result);
    ++next;
  }
  memcached_result_free(&result);
  if (const memcached_return_t error = memcached_last_error(handle_); error != MEMCACHED_SUCCESS) {
    return error;
  }
  if (code != MEMCACHED_END) return code == MEMCACHED_SUCCESS ? MEMCACHED_PARTIAL_READ : code;
  const auto* const server = memcached_server_instance_by_position(handle_, 0);
  return memcached_server_response_count(server) == 0 ? MEMCACHED_SUCCESS : MEMCACHED_PARTIAL_READ;
}

bool Connection::Get(std::span<const std::string> keys, std::vector<Item>& items) {
  items.clear();
  while (items.size() < keys.size()) {
    const auto some = keys.subspan(items.size(), std::min(kKeysPerGet, keys.size() - items.size()));
    std::vector<Item> got;
    for (bool again = true; again;) {
      if (!Open()) return false;
      got.assign(some.size(), Item());
      const int code = GetSome(some, got);
      if (code == MEMCACHED_SUCCESS) break;
      again = Failed(code);
      if (!again) return false;
    }
    proven_ = true;
    for (Item& item : got) items.push_back(std::move(item));
  }
  return true;
}

template <typename Operation>
std::optional<StoreResult> Connection::Change(Operation operation) {
  for (;;) {
    if (!Open()) return std::nullopt;
    const memcached_return_t code = operation(handle_);
    switch (code) {
      case MEMCACHED_SUCCESS:
      case MEMCACHED_STORED:
      case MEMCACHED_DELETED:
        proven_ = true;
        return StoreResult::kDone;
      case MEMCACHED_DATA_EXISTS:
      case MEMCACHED_NOTSTORED:
        proven_ = true;
        return StoreResult::kConflict;
      case MEMCACHED_NOTFOUND:
        proven_ = true;
        return StoreResult::kAbsent;
      case MEMCACHED_E2BIG:
      case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
        // The server may have skipped the item's bytes or closed: begin anew.
        last_error_ = memcached_strerror(handle_, code);
        Close();
        return StoreResult::kRefused;
      default:
        if (!Failed(code)) return std::nullopt;
    }
  }
}

std::optional<StoreResult> Connection::Add(const std::string& key, std::string_view item,
                                           uint32_t expiry_s) {
  return Change([&](memcached_st* handle) {
    return memcached_add(handle, key.data(), key.size(), item.data(), item.size(), expiry_s, 0);
  });
}

std::optional<StoreResult> Connection::Swap(const std::string& key, std::string_view item,
                                            uint32_t expiry_s, uint64_t version) {
  return Change([&](memcached_st* handle) {
    return memcached_cas(handle, key.data(), key.size(), item.data(), item.size(), expiry_s, 0,
                         version);
  });
}

std::optional<StoreResult> Connection::Delete(const std::string& key) {
  return Change(
      [&](memcached_st* handle) { return memcached_delete(handle, key.data(), key.size(), 0); });
}

bool Connection::Ping() {
  if (!Open()) return false;
  const memcached_return_t code = memcached_version(handle_);
  if (code == MEMCACHED_SUCCESS) return proven_ = true;
  Failed(code);
  return false;
}

}  // namespace tailcast::memcached
