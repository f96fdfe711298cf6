// The edges from this cell over which one stream is copied, kept in step with its configuration:
// the tree, the change that is under way, and who is settled (paper §2.3; spec Reroute). It is
// durable in each cell, so a scheduler that begins in the middle of a change goes on with it.
//
// What changed comes out as events, in the order in which they are to be carried out.
//
// A core: no clock, no I/O, one thread; deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tailcast/copytree/change.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/scheduler/edge_change.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

// A step of copytree::Diff that this cell has carried out.
struct StepTaken {
  stream::StreamId stream;
  stream::TreeVersion tree_version = stream::TreeVersion::kNone;
  copytree::StepKind kind = copytree::StepKind::kAddEdge;
  std::string from, to;
};

struct EdgeEvent {
  enum class Kind : uint8_t {
    kBegun,     // a new edge: what was done or given up towards the cell is to be looked at again
    kDropped,   // the edge is gone: its operations end
    kReleased,  // operations of the shard and layer need not wait for the change any more
  };
  Kind kind = Kind::kBegun;
  std::string cell;
  int32_t shard = 0;                              // kReleased
  stream::Layer layer = stream::Layer::kPrimary;  // kReleased
  bool operator==(const EdgeEvent&) const = default;
};

struct EdgeEvents {
  std::vector<EdgeEvent> events;
  std::vector<StepTaken> steps;
};

class StreamEdges {
 public:
  // `cell` is this one. `options` outlives it. A scheduler before us may have got anywhere in the
  // change: edges that leave go on.
  StreamEdges(std::string cell, const EdgeOptions& options, const v1::StreamConfig& config,
              EdgeEvents& out);

  // The configuration changed. An older tree version than the one that is known is ignored, and
  // false.
  bool OnConfig(const v1::StreamConfig& config, EdgeEvents& out);
  // What a neighbour says of itself: over the path of which tree version it is fed.
  void OnSettled(const std::string& cell, stream::TreeVersion settled_version, EdgeEvents& out);
  // What both ends have of a shard of a joining edge; `newest` as EdgeChange::OnLook.
  void OnLook(const std::string& cell, int32_t shard, const Look& look, int64_t newest,
              EdgeEvents& out);

  const v1::StreamConfig& config() const { return config_; }
  stream::StreamId id() const { return stream::IdOf(config_); }
  stream::TreeVersion tree_version() const { return stream::TreeVersionOf(config_); }
  std::map<std::string, EdgeChange>& edges() { return edges_; }  // by target cell
  const std::map<std::string, EdgeChange>& edges() const { return edges_; }
  // nullptr: nothing is copied to the cell.
  EdgeChange* Find(const std::string& cell);
  const EdgeChange* Find(const std::string& cell) const;
  // Some edge waits or joins.
  bool changing() const;
  // Of operations to the cell: an edge that leaves must lose against the one that joins.
  stream::TreeVersion TermVersion(const std::string& cell) const;

 private:
  std::map<std::string, EdgePlan> Plan() const;
  bool IsSettled(const std::string& cell) const;
  void Take(copytree::StepKind kind, const std::string& to, EdgeEvents& out) const;
  void Add(const std::string& cell, EdgePlan plan, EdgeEvents& out);
  void Drop(const std::string& cell, EdgeEvents& out);
  void Settle(const std::string& cell, EdgeEvents& out);
  void ApplySettled(EdgeEvents& out);

  const std::string cell_;
  const EdgeOptions& options_;
  v1::StreamConfig config_;
  std::map<std::string, EdgeChange> edges_;
  std::map<std::string, stream::TreeVersion> settled_;  // by cell, as it says itself
};

}  // namespace tailcast::scheduler
