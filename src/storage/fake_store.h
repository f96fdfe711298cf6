// The primary layer of the deterministic world: an asynchronous store in memory with the semantics
// of a replicated object store. Appends are guarded by an epoch and land some time after they were
// sent, answers come later still or not at all, files do not wait for each other, and what a test
// draws can go wrong.
//
// One FakeDisk (fake_disk.h) is the storage of one cell; each simulated process opens a FakeStore
// on it with its own loop. Killing a process = destroying its FakeStore (after SimLoop::Kill its
// callbacks are dropped too). Requests that it had sent may still land, as on a real network: only
// a fence stops them.
//
//   time ->   AppendAt      lands: epoch checked, bytes committed       done runs
//                |---- request latency ----|------ answer latency ---------|
//                     killed here: lands anyway, or never    lost: kUnknown after answer_timeout
//
// Threads: one, as the disk's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/storage/fake_disk.h"
#include "tailcast/storage/outstanding_calls.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

// One process' view. See Store for the contract of the calls.
class FakeStore final : public Store {
 public:
  // The disk must outlive the store.
  FakeStore(FakeDisk* disk, EventLoop* loop, StoreUse use = StoreUse::kMessages);
  // The process ends. Outstanding callbacks run with kUnknown / Cancelled, if the loop still runs.
  ~FakeStore() override;

  void CreateExclusive(const std::string& dir, const std::string& name, const std::string& key,
                       Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenFencing(const std::string& dir, const std::string& name,
                   Callback<void(Result<std::unique_ptr<AppendFile>>)> done) override;
  void OpenRead(const std::string& dir, const std::string& name,
                Callback<void(Result<std::unique_ptr<ReadFile>>)> done) override;
  void List(const std::string& dir, Callback<void(Result<std::vector<DirEntry>>)> done) override;
  void ListDirs(const std::string& dir,
                Callback<void(Result<std::vector<std::string>>)> done) override;
  void Identify(const std::string& dir, const std::string& name,
                Callback<void(Result<std::string>)> done) override;
  void DeleteExactly(const std::string& dir, const std::string& name, const std::string& id,
                     Callback<void(Status)> done) override;
  void Delete(const std::string& dir, const std::string& name,
              Callback<void(Status)> done) override;
  void Quarantine(const std::string& dir, const std::string& name,
                  Callback<void(Status)> done) override;
  void Room(Callback<void(Result<StoreRoom>)> done) override;

  // A mount that hangs: what this process asks from now on waits until it goes on.
  void Hang();
  void Unhang();
  // A slow machine: what this process asks from now on takes so much longer to get to the disk.
  void SetDelay(Duration delay);
  // A machine that appends so much at most, one append after the other; 0: no limit.
  void SetAppendRate(int64_t bytes_per_second);

  struct Client;

 private:
  // Sends a request of the call: `apply(image)` runs when it lands, and `arrived(done, its result)`
  // on the process' loop, unless the process has ended by then.
  template <typename R, typename T>
  void Send(CallId<T> call, UniqueFunction<Result<R>(FakeImage& image)> apply,
            UniqueFunction<void(Callback<void(T)> done, Result<R> result)> arrived);
  void Remove(Callback<void(Status)> done, UniqueFunction<Status(FakeImage& image)> remove);
  // A call that is one request, and whose result is the request's.
  template <typename T>
  void Request(Callback<void(Result<T>)> done, UniqueFunction<Result<T>(FakeImage& image)> apply);

  FakeDisk* const disk_;
  const std::shared_ptr<Client> client_;
};

}  // namespace tailcast::storage
