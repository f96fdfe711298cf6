#include "tailcast/scheduler/retention_agent.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr int kShardsMax = 256;                      // in one call
constexpr Duration kLookMax = Duration::Seconds(1);  // of all shards of a call
constexpr int64_t kSeqMax = int64_t{1} << 40;

}  // namespace

RetentionAgent::RetentionAgent(EventLoop& loop, storage::Store& store, rpc::Connector& connector,
                               MetricRegistry& metrics, RegistryService& registry,
                               DiskProgress& disk, RetentionAgentOptions options,
                               std::function<void(const stream::ShardId&)> list)
    : loop_(loop),
      metrics_(metrics),
      registry_(registry),
      disk_(disk),
      options_(std::move(options)),
      list_(std::move(list)),
      core_(options_.core, registry.core().catalogue().floors()),
      collect_(loop, store) {
  for (const Neighbour& neighbour : options_.neighbours) {
    links_.try_emplace(neighbour.cell,
                       connector.MakeClient(neighbour.scheduler_address, neighbour.via));
  }
  Tick();
}

void RetentionAgent::End() {
  scope_.End();
  collect_.End();
}

// --- inputs

// What is known and not written yet counts: a cell that is about to be a member is one.
void RetentionAgent::OnStreams() {
  core_.OnStreams(registry_.core().catalogue().streams());
  DoWorkSoon();
}

void RetentionAgent::OnStreamRemoved(const stream::StreamId& stream) {
  core_.OnStreamRemoved(stream);
  stamps_.Forget(stream);
  collect_.Forget(stream);
  disk_.Forget(stream);
  std::erase_if(raising_, [&](const auto& raising) { return raising.first.stream == stream; });
  std::erase_if(listing_, [&](const stream::ShardId& shard) { return shard.stream == stream; });
}

void RetentionAgent::OnFiles(const stream::ShardId& shard, const std::vector<stream::Stem>& stems,
                             bool all) {
  if (all) listing_.erase(shard);
  const v1::StreamConfig* stream = registry_.core().catalogue().FindStream(shard.stream.name);
  if (!stems.empty() && stream != nullptr && stream::IdOf(*stream) == shard.stream &&
      stream->source() == options_.core.cell) {
    if (all) {
      stamps_.OnListed(shard, stems.back());
    } else {
      stamps_.OnNotice(shard, stems.back(), loop_.WallNow());
    }
  }
  if (core_.OnFiles(shard, stems, all)) DoWorkSoon();
}

void RetentionAgent::Sweep() {
  for (const auto& [shard, floor] : registry_.core().catalogue().written_floors()) {
    collect_.Collect(shard, floor);
  }
}

// --- the work

void RetentionAgent::Tick() {
  tick_.After(options_.core.tick, scope_.Bind([this] { Tick(); }));
  DoWork();
  Export();
}

void RetentionAgent::Export() {
  Counter& deleted = metrics_.GetCounter("tailcast_scheduler_retention_files_deleted_total",
                                         "Files below retention floors that were deleted.");
  deleted.Add(collect_.files_deleted() - deleted.value());
  metrics_
      .GetGauge("tailcast_scheduler_retention_waits",
                "Destinations, for each shard, that lack a file which is wanted away.")
      .Set(static_cast<int64_t>(core_.Held().size()));
}

void RetentionAgent::DoWorkSoon() {
  if (std::exchange(posted_, true)) return;
  loop_.Post(scope_.Bind([this] {
    posted_ = false;
    DoWork();
  }));
}

void RetentionAgent::DoWork() {
  if (core_.empty()) return;
  RetentionEffects effects;
  core_.DoWork(loop_.Now(), effects);
  for (const stream::ShardId& shard : effects.list) {
    if (listing_.insert(shard).second) list_(shard);
  }
  if (!effects.empty()) CarryOut(effects);
  for (auto& [cell, link] : links_) Talk(cell, link);
  if (core_.due() < MonotonicTime::Max()) {
    due_.At(core_.due(), scope_.Bind([this] { DoWork(); }));
  }
}

void RetentionAgent::CarryOut(const RetentionEffects& effects) {
  cell::Catalogue& catalogue = registry_.catalogue();
  const auto count = [this](const char* change) {
    metrics_
        .GetCounter("tailcast_scheduler_members_changed_total",
                    "Destinations that retention waits for no more (left_out), and again "
                    "(taken_in).",
                    {{"change", change}})
        .Add();
  };
  for (const auto& [stream, cell] : effects.take_in) {
    kLog.Info("stream ", stream.name, ": files are kept for cell ", cell, " again");
    catalogue.SetLeftOut(stream, cell, false);
    count("taken_in");
  }
  for (const auto& [stream, cell] : effects.leave_out) {
    kLog.Warn("stream ", stream.name, ": no files are kept for cell ", cell,
              " any more, which lacks what retention wants away, or does not answer; its consumers "
              "may miss messages");
    catalogue.SetLeftOut(stream, cell, true);
    count("left_out");
  }
  for (const auto& [shard, floor] : effects.raise) {
    catalogue.RaiseFloor(shard, floor);
    raising_[shard] = floor;
  }
  for (const RetentionNote& note : effects.note) {
    catalogue.NoteHeldUp(note.shard, note.cell, note.done, note.held_up);
  }
  for (const RetentionSeen& seen : effects.seen) {
    catalogue.NoteSeen(seen.shard, seen.seq, seen.ran, seen.old);
  }
  if (effects.ran) catalogue.NoteRan(*effects.ran);
  registry_.Persist();
}

// However long that takes: there may be no room for it.
void RetentionAgent::OnFloorsWritten() {
  const cell::Catalogue& catalogue = registry_.core().catalogue();
  bool raised = false;
  std::erase_if(raising_, [&](const auto& raising) {
    const auto& [shard, floor] = raising;
    if (catalogue.WrittenFloor(shard) < floor) return false;
    if (CollectWritten(shard)) core_.OnRaised(shard, floor);
    raised = true;
    return true;
  });
  if (raised) DoWorkSoon();
}

// False: the stream was deleted meanwhile.
bool RetentionAgent::CollectWritten(const stream::ShardId& shard) {
  const int64_t floor = registry_.core().catalogue().WrittenFloor(shard);
  if (floor == 1) return false;
  collect_.Collect(shard, floor);
  list_(shard);
  return true;
}

void RetentionAgent::Talk(const std::string& cell, Link& link) {
  if (link.calling) return;
  auto asks = core_.TakeAsks(loop_.Now(), cell);
  if (asks.empty()) return;
  v1::CollectRequest request;
  for (const CollectAsk& ask : asks) {
    v1::ShardCollect* shard = request.add_shards();
    stream::SetShard(ask.shard, shard);
    shard->set_floor_seq(ask.floor);
    const v1::StreamConfig* stream = registry_.core().catalogue().FindStream(ask.shard.stream.name);
    if (stream != nullptr) shard->set_tree_version(stream->tree_version());
  }
  link.calling = true;
  link.client->Call(
      "/tailcast.v1.Peer/Collect", request.SerializeAsString(), options_.call_timeout,
      scope_.Bind([this, cell, &link, asks = std::move(asks)](const Result<std::string>& reply) {
        OnReply(cell, link, asks, reply);
      }));
}

void RetentionAgent::OnReply(const std::string& cell, Link& link,
                             const std::vector<CollectAsk>& asks,
                             const Result<std::string>& bytes) {
  link.calling = false;
  const auto reply =
      bytes.ok() ? rpc::Parse<v1::CollectReply>(*bytes) : Result<v1::CollectReply>(bytes.status());
  if (!reply.ok() || reply->shards_size() != static_cast<int>(asks.size())) {
    if (bytes.ok()) kLog.Error("cell ", cell, " answers something else than was asked");
    core_.OnSilence(cell, asks);
    return DoWorkSoon();
  }
  std::vector<CollectAnswer> answers;
  for (const v1::CollectedShard& shard : reply->shards()) {
    answers.push_back({shard.floor_seq(), shard.done_seq()});
  }
  core_.OnAnswer(cell, asks, answers);
  DoWorkSoon();
}

// --- served

void RetentionAgent::TrimStream(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::TrimStreamRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  const auto known = registry_.core().catalogue().FindMine(request->name(), "trim");
  if (!known.ok()) return respond(known.status());
  const v1::StreamConfig stream = **known;
  if (request->incarnation() != 0 && request->incarnation() != stream.incarnation()) {
    return respond(FailedPreconditionError("the position is one of another stream than '" +
                                           stream.name() + "', or of one that was deleted since"));
  }
  if (request->shard() < 0 || request->shard() >= stream.shards()) {
    return respond(InvalidArgumentError("stream '" + stream.name() + "' has shards 0 to " +
                                        std::to_string(stream.shards() - 1) + ", not " +
                                        std::to_string(request->shard())));
  }
  const stream::ShardId shard{stream::IdOf(stream), request->shard()};
  disk_.List(shard, scope_.Bind([this, stream, shard, before = request->before_byte(),
                                 respond = std::move(respond)](
                                    const Result<DiskProgress::Listing>& listing) mutable {
    if (!listing.ok()) return respond(listing.status());
    Trim(stream, shard, before, listing->stems, std::move(respond));
  }));
}

void RetentionAgent::Trim(const v1::StreamConfig& stream, const stream::ShardId& shard,
                          int64_t before_byte, const std::vector<stream::Stem>& stems,
                          rpc::Responder respond) {
  // The last file that begins at or before the byte stays.
  const auto after =
      std::upper_bound(stems.begin(), stems.end(), before_byte,
                       [](int64_t byte, const stream::Stem& s) { return byte < s.start_byte; });
  v1::TrimStreamReply reply;
  if (after == stems.begin()) {
    reply.set_floor_seq(registry_.core().catalogue().WrittenFloor(shard));
    reply.set_first_byte(stems.empty() ? 0 : stems.front().start_byte);
    return respond(reply.SerializeAsString());
  }
  // One that was asked for before may go farther.
  const int64_t trimmed = registry_.core().catalogue().floors().Trimmed(shard);
  auto first = std::prev(after);
  while (std::next(first) != stems.end() && first->seq < trimmed) ++first;
  reply.set_floor_seq(first->seq);
  reply.set_first_byte(first->start_byte);
  if (!registry_.catalogue().Trim(shard, first->seq)) {
    return respond(NotFoundError("stream '" + stream.name() + "' was deleted"));
  }
  registry_.Persist(scope_.Bind(
      [this, stream, reply, respond = std::move(respond)](const Status& status) mutable {
        if (!status.ok()) return respond(status);
        respond(reply.SerializeAsString());
        OnStreams();
      }));
}

struct RetentionAgent::Collecting {
  struct Asked {
    stream::ShardId shard;
    bool known = false, in_tree = false;  // as the source knows the tree
  };
  std::vector<Asked> shards;
  MonotonicTime until;
  v1::CollectReply reply;
  rpc::Responder respond;
};

void RetentionAgent::Collect(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::CollectRequest>(bytes);
  if (!request.ok()) return respond(request.status());
  if (request->shards_size() > kShardsMax) {
    return respond(InvalidArgumentError("shards has more than " + std::to_string(kShardsMax)));
  }
  auto collecting = std::make_shared<Collecting>();
  std::vector<std::pair<stream::ShardId, int64_t>> raised;
  const cell::Catalogue& catalogue = registry_.core().catalogue();
  // Where nothing can be written, the answer is what was: the floors that are, and what is there.
  const bool as_written = !registry_.CanChange().ok();
  for (const v1::ShardCollect& asked : request->shards()) {
    if (asked.floor_seq() < 0 || asked.floor_seq() > kSeqMax) {
      return respond(InvalidArgumentError("floor_seq is " + std::to_string(asked.floor_seq())));
    }
    const stream::ShardId shard = stream::ShardOf(asked);
    const v1::StreamConfig* stream =
        as_written ? cell::FindByName(registry_.view().streams(), shard.stream.name)
                   : catalogue.FindStream(shard.stream.name);
    const bool known = stream != nullptr && stream::IdOf(*stream) == shard.stream &&
                       shard.shard >= 0 && shard.shard < stream->shards();
    // What it has may be of a time before it left the tree, and go.
    const bool in_tree = known && asked.tree_version() <= stream->tree_version() &&
                         !catalogue.IsDropping(shard.stream) &&
                         !(as_written && catalogue.WasDropping(shard.stream));
    if (known && stream->source() == options_.core.cell) {
      return respond(InvalidArgumentError("cell '" + options_.core.cell +
                                          "' is the source of stream '" + stream->name() + "'"));
    }
    collecting->shards.push_back({shard, known, in_tree});
    if (known && !as_written && asked.floor_seq() > catalogue.floors().Floor(shard)) {
      raised.emplace_back(shard, asked.floor_seq());
    }
  }
  for (const auto& [shard, floor] : raised) registry_.catalogue().RaiseFloor(shard, floor);
  collecting->respond = std::move(respond);
  if (as_written) {
    collecting->until = loop_.Now() + kLookMax;
    return FindNextDone(collecting);
  }
  registry_.Persist(scope_.Bind([this, collecting, raised](const Status& status) {
    if (!status.ok()) return collecting->respond(status);
    for (const auto& [shard, floor] : raised) CollectWritten(shard);
    collecting->until = loop_.Now() + kLookMax;
    FindNextDone(collecting);
  }));
}

void RetentionAgent::FindNextDone(const std::shared_ptr<Collecting>& collecting) {
  const cell::Catalogue& catalogue = registry_.core().catalogue();
  for (;;) {
    const auto next = static_cast<size_t>(collecting->reply.shards_size());
    if (next == collecting->shards.size()) {
      return collecting->respond(collecting->reply.SerializeAsString());
    }
    const auto& [shard, known, in_tree] = collecting->shards[next];
    v1::CollectedShard* answer = collecting->reply.add_shards();
    if (!known) continue;
    if (!in_tree) {
      answer->set_done_seq(-1);
      continue;
    }
    const int64_t floor = catalogue.WrittenFloor(shard);
    answer->set_floor_seq(floor);
    if (loop_.Now() >= collecting->until) {
      answer->set_done_seq(-1);
      continue;
    }
    disk_.FindDone(shard, floor, scope_.Bind([this, collecting, answer](Result<int64_t> done) {
      answer->set_done_seq(done.ok() ? *done : -1);
      FindNextDone(collecting);
    }));
    return;
  }
}

}  // namespace tailcast::scheduler
