// The primary layer on an object store: a file is a manifest and a row of append objects, a folder
// is an object whose keys are its files. docs/formats/primary_objects.md has the layout,
// rolled_core.h and the cores the decisions; this class sends their requests and calls back.
//
// Costs, in requests that are sent one after the other: an append 1 (4 more where an object is
// rolled), a takeover 5, a creation 4, Size and Read 1, a listing 1 for each thousand names.
//
// Threads: all calls on the loop; see Store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/step_log.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/object_store.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage {

struct RolledStoreOptions {
  // Of files that are created here: an object with this many bytes is rolled. 1 to 64 MB. An append
  // that is larger is cut, and after a crash a part of it may be there.
  int64_t roll_bytes = int64_t{32} << 20;
  // Of a call of the port, with all its requests. Then an append is kUnknown, anything else
  // DeadlineExceeded; what was sent may be done later.
  Duration deadline = Duration::Seconds(30);
  // Reads that are outstanding; above it Read answers ResourceExhausted.
  size_t reads_max = 65'536;
  // For ids of files; no two processes that ever use a store may have the same one.
  uint64_t seed = 0;
  MetricRegistry* metrics = nullptr;  // null: ProcessMetrics()
  std::shared_ptr<StepLog> steps;     // not null: each committed length is logged there
};

class RolledStore final : public Store {
 public:
  // `loop` outlives the store and its handles.
  RolledStore(EventLoop* loop, std::unique_ptr<ObjectStore> objects, RolledStoreOptions options);
  // Outstanding callbacks run later, with kUnknown / Cancelled.
  ~RolledStore() override;

  // Makes the root folder where there is none; a store is used after this, or after another process
  // has done it. FailedPrecondition: what lies there is of another version.
  void Format(Callback<void(Status)> done);

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

  struct Client;

 private:
  const std::shared_ptr<Client> client_;
};

}  // namespace tailcast::storage
