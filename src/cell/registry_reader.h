// Reads what a cell's registry says, without fencing anybody: for users of the cell whose scheduler
// does not answer at the address that they know, because it was started again elsewhere, and to see
// whose a store is.
//
// Threads: everything on the store's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/registry.pb.h"
#include "tailcast/storage/store.h"

namespace tailcast::cell {

class RegistryReader {
 public:
  // `store` outlives it.
  explicit RegistryReader(storage::Store& store) : store_(store) {}
  RegistryReader(const RegistryReader&) = delete;
  RegistryReader& operator=(const RegistryReader&) = delete;

  // What was written last. Reads the log's last file, some megabytes at most. NotFound: there is
  // none. Others: as Store's, DataLoss.
  void ReadLast(Callback<void(Result<v1::RegistrySnapshot>)> done);
  // The address that the last scheduler has written; it may have ended since. NotFound: none is
  // known. Others: as ReadLast's.
  void FindScheduler(Callback<void(Result<std::string>)> done);
  // Whether the store is that of the cell that has this view, so that what is written there is what
  // others read. FailedPrecondition: another registry lies there, or none, as where the cell's
  // volume is not mounted. Others: as ReadLast's.
  void CheckOwner(const v1::CellView& view, Callback<void(Status)> done);

 private:
  struct Search;
  void ReadFile(const std::shared_ptr<Search>& search);
  void ReadOn(const std::shared_ptr<Search>& search);
  void OnContent(const std::shared_ptr<Search>& search);

  storage::Store& store_;
  Scope scope_;
};

}  // namespace tailcast::cell
