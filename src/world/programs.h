// What runs on a simulated process (deployment.h): the production Node, or single agents on the
// same ports. Each function returns a program that makes its agents, starts them, and leaves them
// in their places in Process.
#pragma once

#include <optional>

#include "tailcast/cell/topology.h"
#include "tailcast/world/deployment.h"

namespace tailcast::world {

// A chain of cells: neighbours are cheap, so that the chain is what a planned tree takes.
cell::Topology Chain(const Deployment& deployment);

// The whole process as in production; its role is what its name begins with ("cache-1").
struct NodeSetup {
  std::string name;  // of the node; empty: the process'
  int caches = 4;    // of the cell: cache-1 .. cache-N
  int spares = 0;    // further ones, which are in no ring at first
  bool low_latency = true;
  int64_t cache_bytes = 8 << 20;  // of a data cache; a metadata cache has half of it
  int scheduler_port = 7400;      // that a scheduler listens on; everybody expects 7400
  int64_t jump_bytes = 0;         // node::Ports::jump_bytes
  int64_t slow_after_ms = 200;    // of the topology
  std::optional<scheduler::BalanceOptions> balance = {};  // node::Ports::balance
};
Program RunNode(Deployment& deployment, NodeSetup setup);

// Single agents. Their names, cells and incarnations are filled in.
Program RunScheduler(Deployment& deployment, const scheduler::SchedulerOptions& options);
Program RunReader(Deployment& deployment, const reader::ReaderOptions& options);
Program RunWriter(Deployment& deployment, const writer::WriterOptions& options);
// A data and a metadata cache.
Program RunCacheServer(Deployment& deployment, const cache::ServerOptions& options);

// The ports of a user's process: its view of the cell, and clients of the cell's caches.
Program RunClient(Deployment& deployment);

// Makes `p`'s clients of the cell's cache servers, if the deployment has such, and the client of
// its scheduler, which keeps them up to date and is started.
void OpenCell(Deployment& deployment, Process& p);

}  // namespace tailcast::world
