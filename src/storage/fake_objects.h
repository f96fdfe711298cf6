// An object store in virtual time, for tests and the simulator of whatever stands on the port
// ObjectStore: requests that land late, answers that are lost, requests that land twice, processes
// that die between any two requests, a pool that is full, stalled or deleted.
//
// FakeObjects is what all processes share; FakeObjectStore is the port of one of them.
//
// Threads: one. Everything is a function of the seed and of the order of calls.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/storage/fake_disk.h"
#include "tailcast/storage/object_store.h"

namespace tailcast::storage {

// Rates are probabilities per request.
struct FakeObjectsOptions {
  FakeLatency request;
  FakeLatency answer;
  // The answer is lost: kUnknown after `answer_timeout`. The request lands now, within
  // `late_landing_max`, or never.
  double answer_lost_rate = 0;
  // A change lands once more within `late_landing_max`; the process is told of the one that was
  // answered, which may be either.
  double twice_rate = 0;
  Duration answer_timeout = Duration::Seconds(2);
  Duration late_landing_max = Duration::Seconds(10);
  // Bytes of all objects; changes beyond it are kFailed with ResourceExhausted.
  int64_t capacity_bytes = INT64_MAX;
  // Names in one answer to a look.
  size_t names_max = 1000;

  // Each fault with probability one half, rates up to 0.05.
  static FakeObjectsOptions Swarm(Rng& rng);
};

class FakeObjects {
 public:
  struct Counters {
    int64_t requests = 0;
    int64_t answers_lost = 0;
    int64_t landed_late = 0;
    int64_t landed_twice = 0;
    int64_t refused = 0;
  };

  // `loop` turns landings; it outlives the objects and is not killed.
  FakeObjects(EventLoop* loop, uint64_t seed, FakeObjectsOptions options = {});

  void SetOptions(FakeObjectsOptions options) { options_ = options; }
  // All objects go, now, and nothing can be made any more.
  void DeletePool();
  // One goes, as if it had never been.
  void Lose(const std::string& name);
  // While stopped nothing lands; what is sent meanwhile lands afterwards.
  void Stop() { stopped_ = true; }
  void Go();
  // The cluster loses power: what has not landed is there or not; what has, stays.
  void LosePower();

  // What FakeObjectStore::Decide has kept lands now.
  void LandKept();

  const Counters& counters() const { return counters_; }
  // For tests: the names of all objects, in order.
  std::vector<std::string> Names() const;

 private:
  friend class FakeObjectStore;
  struct Object {
    std::string bytes;
    std::map<std::string, std::string> attributes;
    std::map<std::string, std::string> keys;
  };
  ObjectReply Apply(const ObjectRequest& request);
  ObjectReply Change(const ObjectChange& change);
  ObjectReply Look(const ObjectLook& look) const;
  void LandAfter(Duration delay, UniqueFunction<void()> landing);

  EventLoop* const loop_;
  Rng rng_;
  FakeObjectsOptions options_;
  Counters counters_;
  std::map<std::string, Object> objects_;
  int64_t bytes_ = 0;
  bool pool_deleted_ = false;
  bool stopped_ = false;
  std::map<uint64_t, UniqueFunction<void()>> landings_;  // not landed yet, by number
  uint64_t last_landing_ = 0;
  std::deque<UniqueFunction<void()>> held_;
  std::deque<UniqueFunction<void()>> kept_;
  Scope scope_;
};

class FakeObjectStore final : public ObjectStore {
 public:
  FakeObjectStore(FakeObjects* objects, EventLoop* loop) : objects_(objects), loop_(loop) {}
  void Send(ObjectRequest request, MonotonicTime deadline,
            Callback<void(ObjectReply)> done) override;

  // What becomes of one request, for tests that go through all of them.
  enum class Fate : uint8_t {
    kTwice,        // it lands twice; the answer is that of the second time
    kOnceMore,     // it lands, is answered, and is kept: FakeObjects::LandKept lands it once more
    kLostDone,     // it lands, and nothing is answered
    kLostAndKept,  // nothing is answered, and it is kept
    kLost,         // it never lands, and nothing is answered
  };
  // Of the request that will be the `number`th that it sends, as sent() counts.
  void Decide(int64_t number, Fate fate) {
    decided_number_ = number;
    decided_ = fate;
  }

  // The process is gone after so many more requests: later ones are not sent, and nothing is
  // answered.
  void DieAfter(int64_t requests) { requests_left_ = requests; }
  bool dead() const { return requests_left_ < 0; }
  int64_t sent() const { return sent_; }

 private:
  FakeObjects* const objects_;
  EventLoop* const loop_;
  int64_t requests_left_ = INT64_MAX;
  int64_t sent_ = 0;
  int64_t decided_number_ = 0;
  Fate decided_ = Fate::kTwice;
  Scope scope_;
};

}  // namespace tailcast::storage
