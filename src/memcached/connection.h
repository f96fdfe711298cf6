// The one place that knows libmemcached: a blocking connection to one memcached server, with the
// operations that merges and reads need. It is made when it is first needed, and made anew after
// every failure; an operation whose connection breaks is made once more on a new one, for a server
// that restarted. All operations may be repeated: a change that was carried out already is found by
// the next get.
//
// Threads: one at a time. Each operation blocks for a few timeouts at most: connecting, sending,
// each piece of the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/memcached/merge_core.h"
#include "tailcast/memcached/server_address.h"

struct memcached_st;

namespace tailcast::memcached {

class Connection {
 public:
  Connection(ServerAddress address, Duration timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Of the operations from now on; at least a millisecond.
  void SetTimeout(Duration timeout);

  struct Item {
    std::optional<std::string> bytes;  // nullopt: absent
    uint64_t version = 0;
  };
  // One item a key, in their order. False: no answer, or not all of it: nothing is known.
  bool Get(std::span<const std::string> keys, std::vector<Item>& items);
  // nullopt: no answer; it may have been carried out. Expiry in seconds from now, 30 days at most.
  std::optional<StoreResult> Add(const std::string& key, std::string_view item, uint32_t expiry_s);
  std::optional<StoreResult> Swap(const std::string& key, std::string_view item, uint32_t expiry_s,
                                  uint64_t version);
  std::optional<StoreResult> Delete(const std::string& key);
  // Whether the server answers at all.
  bool Ping();

  // Why the last operation failed.
  enum class Failure : uint8_t {
    kUnreachable,  // no connection, or one that broke before anything was answered
    kBroken,       // it broke later, or brought what is no answer
    kTimeout,
    kRefused,  // the server answered that it will not
  };
  Failure last_failure() const { return last_failure_; }
  const std::string& last_error() const { return last_error_; }
  // Operations that were made once more.
  uint64_t reconnections() const { return reconnections_; }

 private:
  bool Open();
  void Close();
  // Keeps the reason, closes. True: the operation is to be made once more.
  bool Failed(int result);
  Failure FailureOf(int result) const;
  template <typename Operation>
  std::optional<StoreResult> Change(Operation operation);
  // As Get, of keys that fit into one request. What it came to is a memcached_return_t.
  int GetSome(std::span<const std::string> keys, std::vector<Item>& items);

  const ServerAddress address_;
  Duration timeout_;
  memcached_st* handle_ = nullptr;  // null: not connected
  bool proven_ = false;             // the server answered on this connection
  std::string last_error_;
  Failure last_failure_ = Failure::kUnreachable;
  uint64_t reconnections_ = 0;
};

}  // namespace tailcast::memcached
