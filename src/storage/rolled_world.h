// The rolled driver on the object-level fake in virtual time: up to ten processes of one pool. For
// tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/metrics.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/conformance_world.h"
#include "tailcast/storage/fake_objects.h"
#include "tailcast/storage/rolled_store.h"
#include "tailcast/storage/store_sync.h"

namespace tailcast::storage {

// Two appends of five bytes fill an object.
inline constexpr int64_t kRoll = 8;

// Planted bugs that rolled_store_test.cc's sweep catches; storage.rolled_epoch_not_guarded is its
// fencer's that slept. The others are rolled_names_test.cc's.
inline constexpr const char* kCaughtByTheSweep[] = {
    "storage.rolled_append_not_guarded",   "storage.rolled_length_not_guarded",
    "storage.rolled_create_not_exclusive", "storage.rolled_manifest_not_guarded",
    "storage.rolled_manifest_not_raised",  "storage.rolled_refused_is_fenced",
    "storage.rolled_roll_not_noticed",     "storage.rolled_early_look_believed"};

class ObjectWorld : public ConformanceWorld {
 public:
  ObjectWorld(uint64_t seed, FakeObjectsOptions options, int64_t roll_bytes)
      : time_(seed),
        objects_loop_(time_.MakeLoop("objects")),
        objects_(objects_loop_.get(), seed),
        roll_bytes_(roll_bytes) {
    Sync(9);  // formats it
    objects_.SetOptions(options);
  }

  Store& store(int process) override {
    Process& p = processes_[process];
    if (p.store == nullptr) {
      p.loop = time_.MakeLoop("process-" + std::to_string(process));
      auto port = std::make_unique<FakeObjectStore>(&objects_, p.loop.get());
      p.port = port.get();
      RolledStoreOptions options;
      options.roll_bytes = roll_bytes_;
      options.seed = ++seed_;
      options.metrics = &metrics_;
      p.store = std::make_unique<RolledStore>(p.loop.get(), std::move(port), options);
      if (process == 9) {
        const Status made = Await<Status>([this](const auto& done) { return Turn(done); },
                                          [&](auto done) { p.store->Format(std::move(done)); });
        TAILCAST_CHECK(made.ok(), made.ToString());
      }
    }
    return *p.store;
  }
  void Restart(int process) override {
    Process& p = processes_[process];
    if (p.loop != nullptr) p.loop->Kill();
    p.store.reset();
    p.loop.reset();
  }
  bool Turn(const std::function<bool()>& done) override {
    return time_.RunUntil(done, Duration::Seconds(60));
  }
  bool can_lose_power() const override { return true; }
  void PowerLoss() override {
    objects_.LosePower();
    for (auto& [number, process] : processes_) {
      if (process.loop != nullptr) process.loop->Kill();
      process.store.reset();
      process.loop.reset();
    }
  }

  SyncStore Sync(int process) {
    return SyncStore(&store(process), [this](const auto& done) { return Turn(done); });
  }
  FakeObjectStore& port(int process) {
    store(process);
    return *processes_[process].port;
  }
  sim::SimLoop& loop(int process) {
    store(process);
    return *processes_[process].loop;
  }
  FakeObjects& objects() { return objects_; }
  sim::VirtualTime& time() { return time_; }

 private:
  struct Process {
    std::unique_ptr<sim::SimLoop> loop;
    FakeObjectStore* port = nullptr;
    std::unique_ptr<RolledStore> store;
  };
  MetricRegistry metrics_;
  sim::VirtualTime time_;
  std::unique_ptr<sim::SimLoop> objects_loop_;
  FakeObjects objects_;
  const int64_t roll_bytes_;
  uint64_t seed_ = 0;
  std::map<int, Process> processes_;
};

}  // namespace tailcast::storage
