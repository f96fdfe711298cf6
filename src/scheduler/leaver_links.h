// Carries out how cells that left a stream's copy tree give their disk back (leaver_core.h): as the
// stream's source it tells them the tree, compares what they have with what is here, and orders
// them to drop it; as such a cell it says to the source that it has files still.
//
//   InstallStream, ShardProgress, LeaveStream ---> | scheduler | of a cell that left
//                                   AskToLeave --> | scheduler | of the source
//
// Threads: everything on one loop.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/scheduler/leaver_core.h"
#include "tailcast/scheduler/peer_links.h"
#include "tailcast/scheduler/registry_service.h"

namespace tailcast::scheduler {

struct LeaverLinksOptions {
  LeaverOptions core;
  std::vector<Neighbour> neighbours;  // all other cells
  Duration call_timeout = Duration::Seconds(5);
};

class LeaverLinks {
 public:
  // All outlive it; the registry is open.
  LeaverLinks(EventLoop& loop, rpc::Connector& connector, RegistryService& registry,
              DiskProgress& disk, LeaverLinksOptions options);
  LeaverLinks(const LeaverLinks&) = delete;
  LeaverLinks& operator=(const LeaverLinks&) = delete;

  // Something was written.
  void OnWritten();
  // Files of a stream are here whose trees, as far as is known, do not name this cell.
  void OnLeftFiles(const v1::StreamConfig& stream);
  const LeaverCore& core() const { return core_; }
  void End() { scope_.End(); }

 private:
  // Null: no such cell in the deployment.
  rpc::Client* Find(const std::string& cell);
  void DoWork();
  void Tell(const LeaverId& id);
  void Compare(const LeaverEffects::Compare& what);
  void Order(const LeaverId& id);
  void OnOrdered(const LeaverId& id, const Result<std::string>& bytes);

  EventLoop& loop_;
  rpc::Connector& connector_;
  RegistryService& registry_;
  DiskProgress& disk_;
  const LeaverLinksOptions options_;
  LeaverCore core_;
  std::map<std::string, std::unique_ptr<rpc::Client>> clients_;  // by cell
  std::map<stream::StreamId, const v1::StreamConfig*> streams_;  // of the view, while it stays
  std::set<stream::StreamId> asking_;                            // to leave
  Timer timer_{loop_};
  Scope scope_;
};

}  // namespace tailcast::scheduler
