// What a process or user of a cell does while its scheduler is silent: says so in its log, looks
// for it in the cell's registry (registry_reader.h), and says when it answers again.
//
// Threads: everything on the client's loop.
#pragma once

#include <memory>

#include "tailcast/base/log.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/registry_reader.h"
#include "tailcast/storage/store.h"

namespace tailcast::cell {

class SchedulerFinder {
 public:
  // Says what happens to the contact of `client` from now on. Both outlive it, and neither is asked
  // for anything after its end.
  SchedulerFinder(CellClient& client, const Logger& log);
  SchedulerFinder(const SchedulerFinder&) = delete;
  SchedulerFinder& operator=(const SchedulerFinder&) = delete;

  // From now on it looks there, in the cell's primary layer, which outlives it. Once.
  void LookIn(storage::Store& store);

 private:
  void Say(const CellClient::Contact& contact) const;

  CellClient& client_;
  const Logger& log_;
  std::unique_ptr<RegistryReader> registry_;
  Scope scope_;
};

}  // namespace tailcast::cell
