// A thread that speaks to one memcached server: requests wait in a queue and are carried out one
// after the other, so a slow server delays nobody but itself. It decides nothing: what a merge does
// next is MergeCore's to say, which requests are made the caller's.
//
// A request that is too late when its turn comes is not made; neither is what waits behind one that
// failed, since the server would be waited for once more.
//
// Threads: all calls on one loop, where answers arrive. The destructor waits for the operation
// under way, a few `server_timeout`s at most; answers that are not there yet never come.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/types.h"
#include "tailcast/memcached/connection.h"
#include "tailcast/memcached/item.h"

namespace tailcast::memcached {

// What a request came to as a whole.
enum class RequestOutcome : uint8_t {
  kAnswered,
  // The server failed (Connection::Failure).
  kUnreachable,
  kBroken,
  kTimeout,
  kRefused,
  // Not made: nothing new is known of the server.
  kNotTaken,      // whoever did not take it counts it
  kLate,          // it had become too late
  kAfterFailure,  // the one before it failed
};
constexpr bool IsFailure(RequestOutcome outcome) {
  return outcome >= RequestOutcome::kUnreachable && outcome <= RequestOutcome::kRefused;
}

struct ReadAnswer {
  RequestOutcome outcome = RequestOutcome::kNotTaken;
  struct Value {
    enum class State : uint8_t { kAbsent, kFound, kDamaged } state = State::kAbsent;
    cache::MergeRule rule = cache::MergeRule::kLongerWins;
    std::string bytes;
  };
  std::vector<Value> values;  // in the order of the keys; empty unless answered
  uint64_t reconnections = 0;
};

struct WriteAnswer {
  RequestOutcome outcome = RequestOutcome::kNotTaken;
  // In the order of the mutations; nullopt: not known, since the server failed, it became too late
  // or others were always faster.
  std::vector<std::optional<cache::MutationResult>> results;
  uint64_t cas_retries = 0, cas_given_up = 0, late_mutations = 0, damaged_items = 0,
           reconnections = 0;
};

class ServerThread {
 public:
  struct Options {
    Duration server_timeout;
    Duration time_to_live;
    uint32_t cas_rounds_max = 1;
  };
  // `loop` outlives it.
  ServerThread(EventLoop& loop, ServerAddress address, ItemFormat format, Options options);
  ~ServerThread();

  // Carries nothing out any more, once the operation under way has ended; does not wait for it.
  void Stop();
  void Read(std::vector<cache::Key> keys, MonotonicTime deadline, Callback<void(ReadAnswer)> done);
  // `which`: of the mutations, which several servers share.
  void Write(std::shared_ptr<const std::vector<cache::Mutation>> mutations,
             std::vector<uint32_t> which, MonotonicTime deadline, Callback<void(WriteAnswer)> done);

 private:
  struct ReadRequest {
    std::vector<cache::Key> keys;
    MonotonicTime deadline;
    Callback<void(ReadAnswer)> done;
  };
  struct WriteRequest {
    std::shared_ptr<const std::vector<cache::Mutation>> mutations;
    std::vector<uint32_t> which;
    MonotonicTime deadline;
    Callback<void(WriteAnswer)> done;
  };
  using Request = std::variant<ReadRequest, WriteRequest>;

  void Put(Request request);
  void Run();
  bool stopping();
  // False: too late, or the end. Else the next operation waits no longer than is left.
  bool MayGoOn(MonotonicTime deadline);
  void Skip(Request request);
  // Whether the server answered.
  bool Carry(ReadRequest request);
  bool Carry(WriteRequest request);
  // Of what the connection did not do.
  RequestOutcome Failure() const;
  RequestOutcome Merge(const WriteRequest& request, WriteAnswer& answer);

  EventLoop& loop_;
  const ItemFormat format_;
  const Options options_;
  Connection connection_;  // the thread's
  uint32_t expiry_s_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Request> queue_;  // guarded by mutex_
  bool stopping_ = false;      // guarded by mutex_
  std::thread thread_;
};

}  // namespace tailcast::memcached
