// The scheduler's links to the schedulers of the cells that it copies to: it watches their views
// (who writes there, who is settled), tells them the streams' configurations along the copy trees
// until they have taken them, and asks them what they have of a shard.
//
//   InstallStream, ShardProgress ---> | scheduler |
//     GetView (long poll) <---------- | of a peer |
//
// Threads: everything on one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/cell/registry_core.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/core_driver.h"
#include "tailcast/scheduler/disk_progress.h"
#include "tailcast/stream/term.h"

namespace tailcast::scheduler {

struct Neighbour {
  std::string cell;
  std::string scheduler_address;  // host:port
  std::string via;                // HTTP CONNECT proxy on the way, or empty
};

struct PeerLinksOptions {
  std::string cell;                   // this one
  std::vector<Neighbour> neighbours;  // the cells that streams may be copied to
  Duration peer_timeout = Duration::Seconds(5);
  Duration peer_retry = Duration::Millis(500);
};

// What is known of a stream: here applied, or to a neighbour told.
struct ToldStream {
  stream::StreamIncarnation incarnation = stream::StreamIncarnation::kNone;
  stream::TreeVersion tree_version = stream::TreeVersion::kNone;
  bool settled = false, complete = false;
  uint64_t retention_version = 0;
  bool operator==(const ToldStream&) const = default;
};

// `cell` is fed over the path that the stream's tree wants, as its own configuration says.
bool IsSettled(const v1::StreamConfig& stream, const std::string& cell);

class PeerLinks {
 public:
  // All outlive it. `on_view`: a peer says something else of these streams, and the core knows.
  PeerLinks(EventLoop& loop, rpc::Connector& connector, MetricRegistry& metrics, CoreDriver& driver,
            const cell::RegistryCore& registry, PeerLinksOptions options,
            std::function<void(const std::set<std::string>& streams)> on_view);
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // These streams are others, or new: links to the cells that the core copies them to; tells each
  // of them what it does not know yet.
  void Update(const std::set<std::string>& streams);
  // Tells the cell, if there is a link to it, what it does not know yet of the stream.
  void Tell(const std::string& cell, const std::string& stream);
  // The stream is no more; its source tells everybody (catalogue_links.h).
  void Forget(const std::string& stream);
  // All cells below `cell`, which is fed from here, are fed as this tree version wants it: it says
  // so itself.
  bool IsFinished(const v1::StreamConfig& stream, const std::string& cell) const;
  bool Has(const std::string& cell) const { return links_.contains(cell); }
  // What the cell, to which there is a link, has of the shard, as soon as it knows this tree: up to
  // `files_max` files from `from_seq` on. Errors: the call's.
  void AskProgress(const stream::ShardId& shard, stream::TreeVersion tree_version,
                   const std::string& cell, int64_t from_seq, int files_max,
                   Callback<void(Result<ShardProgress>)> done);
  // Drops all links and what is under way on them.
  void End() { links_.clear(); }

 private:
  // What a peer says of a stream.
  struct Theirs {
    stream::StreamIncarnation incarnation = stream::StreamIncarnation::kNone;
    stream::TreeVersion settled = stream::TreeVersion::kNone;
    stream::TreeVersion finished = stream::TreeVersion::kNone;
    bool operator==(const Theirs&) const = default;
  };
  struct Link {
    Link(EventLoop& loop, rpc::Connector& connector, const Neighbour& neighbour)
        : cell(neighbour.cell),
          via(neighbour.via),
          client(connector.MakeClient(neighbour.scheduler_address, neighbour.via)),
          view(loop, connector, neighbour.scheduler_address, neighbour.via),
          retry(loop) {}
    const std::string cell, via;
    const std::unique_ptr<rpc::Client> client;
    cell::CellClient view;
    uint64_t registry_id = 0;                     // of its last view
    uint64_t lacking_seen = 0;                    // v1::LackingFile.look, up to here
    std::map<std::string, ToldStream> installed;  // by stream name, as last answered
    std::set<std::string> installing;             // asked, and not answered
    std::set<std::string> failed;                 // to be told when `retry` is due
    std::map<std::string, Theirs> theirs;         // by stream name
    Timer retry;
    Scope scope;
  };

  void Connect(const Neighbour& neighbour);
  void OnView(Link& link);
  // Which streams its view says something else of.
  static std::set<std::string> TakeTheirs(Link& link);
  void Settle(const Link& link, const std::string& stream);
  void ForgetLost(Link& link);
  void CopyLacking(Link& link);
  void Tell(Link& link, const std::string& stream);
  void TellAll(Link& link);
  void Install(Link& link, const v1::StreamConfig& stream, const ToldStream& what);
  void OnInstalled(Link& link, const std::string& stream, const ToldStream& what,
                   const Status& status);
  void Retry(Link& link, const std::string& stream);

  EventLoop& loop_;
  rpc::Connector& connector_;
  MetricRegistry& metrics_;
  CoreDriver& driver_;
  const cell::RegistryCore& registry_;
  const PeerLinksOptions options_;
  const std::function<void(const std::set<std::string>&)> on_view_;
  std::map<std::string, std::unique_ptr<Link>> links_;  // by cell
  std::set<std::string> unknown_;  // cells without an address; complained about
};

}  // namespace tailcast::scheduler
