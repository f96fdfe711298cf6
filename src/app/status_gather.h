// What a cell says of itself, asked for `tailcast status`: its processes, caches, operations, and
// the heads of its streams, seen with a consumer's eyes. May be asked again and again: the
// connections to its caches stay.
//
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/deployment.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/session/session.h"

namespace tailcast::app {

class CellLook {
 public:
  // `stream`: the only one whose heads are looked for; empty: all.
  CellLook(DeploymentCell where, std::string stream);
  ~CellLook();

  // Waits for 2 s at most for each of: the cell, its processes, the heads of its streams. What does
  // not answer is said to be silent. A cell that does not: {"name", "error", "processes": []}.
  //
  //   name, scheduler, scheduler_incarnation
  //   processes    name, role, pid, rpc, metrics, state (up, silent, down), error, status (what it
  //                says of itself)
  //   metadata_cache   configuration_id, epoch, memcached, replicas: name, there, whole, excused
  //   streams      stream, source, chunk_size, unknown, shards_not_shown, shards: shard, state, messages,
  //                bytes, position, as_of_us, age_ms, error, lacking, messages_per_s, bytes_per_s
  //   heads_error, heads_denied   why all streams are unknown; that this user may not see
  //   hops         to, layer, operations, behind_bytes, behind_ms, confirmed_after_ms; with
  //                back-pressure: waiting (operations), and of the one that waits for longest
  //                waits_for (source, link, writer), waits_ms, waits_stream
  //   operations, retention_waits   as the scheduler says; operations with back-pressure have
  //                waits_for and waits_ms, too
  //   stamps       stream, shard, file (the newest), ahead_ms of the scheduler's clock; negative:
  //                behind it
  //   slow_workers role, cell, name, state (relieved, avoided, on trial), took_ms, peers_ms,
  //                remaining_ms: readers of this cell and writers of those below that its scheduler
  //                avoids
  //   disk         text, free_bytes, total_bytes, full, no_room, failing, unread: as the scheduler says
  //   left_out     stream, cell
  //   lacking_files
  //   users        as AddUsers (status_users.h)
  nlohmann::json Look();
  // Of all streams that the cell knew when it was last looked at.
  const std::vector<std::string>& stream_names() const { return stream_names_; }

 private:
  Result<nlohmann::json> Ask();
  nlohmann::json Heads(const cell::CellView& view, const Status& open);
  Status OpenHeads();
  void AskProcesses(CellSession& session, nlohmann::json& cell) const;

  const DeploymentCell where_;
  const std::string stream_;
  std::vector<std::string> stream_names_;
  ThreadLoop heads_loop_;
  std::unique_ptr<session::Session> heads_;  // null: not open
};

}  // namespace tailcast::app
