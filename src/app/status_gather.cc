#include "tailcast/app/status_gather.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/lacking.h"
#include "tailcast/app/status_users.h"
#include "tailcast/base/scope.h"
#include "tailcast/consumer/consumer_agent.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/operation.h"

namespace tailcast::app {
namespace {

using nlohmann::json;

constexpr Duration kCallTimeout = Duration::Seconds(2);
constexpr Duration kHeadTimeout = Duration::Seconds(1);  // for all streams of a cell
constexpr int32_t kShardsShownMax = 100;                 // of a stream
constexpr int32_t kHeadsMax = 2000;                      // of a cell
// Throughput is what was published in the newest so many seconds.
constexpr Duration kRateWindow = Duration::Seconds(10);

const char* RoleOf(v1::Role role) {
  switch (role) {
    case v1::ROLE_CACHE:
      return "cache";
    case v1::ROLE_READER:
      return "reader";
    case v1::ROLE_WRITER:
      return "writer";
    case v1::ROLE_SCHEDULER:
      return "scheduler";
    default:
      return "unknown";
  }
}

// What the running operations of a hop have in common.
struct HopTotals {
  int running = 0;
  int64_t behind_bytes = 0;
  int64_t behind_us = 0, delay_us = 0;  // the largest
  int waiting = 0;                      // operations with back-pressure
  v1::OperationReport longest;          // of them, the one that waits for longest
};

const char* EndOf(v1::WaitsFor end) {
  switch (end) {
    case v1::WAITS_FOR_SOURCE:
      return "source";
    case v1::WAITS_FOR_LINK:
      return "link";
    case v1::WAITS_FOR_WRITER:
      return "writer";
    default:
      return "";
  }
}

// What the scheduler's row of an operation is told by.
using RowKey = std::tuple<std::string, int32_t, int64_t, std::string, std::string>;

RowKey KeyOf(const v1::Operation& op) {
  const auto stem = stream::Stem::Parse(op.stem());
  return {op.stream(), op.shard(), stem ? stem->seq : 0,
          std::string(stream::LayerName(static_cast<stream::Layer>(op.layer()))), op.target_cell()};
}

// Operations with back-pressure.
using Waits = std::map<RowKey, v1::OperationReport>;

void AddWait(const v1::OperationReport& report, json& row) {
  row["waits_for"] = EndOf(report.waits_for());
  row["waits_ms"] = static_cast<double>(report.waits_us()) / 1e3;
}

void AddWaits(const Waits& waits, json& operations) {
  for (json& row : operations) {
    const auto it =
        waits.find({row.value("stream", ""), row.value("shard", 0), row.value("file", int64_t{0}),
                    row.value("layer", ""), row.value("target", "")});
    if (it != waits.end()) AddWait(it->second, row);
  }
}

// The end of a shard, as it is looked for.
struct Head {
  const v1::StreamConfig* config = nullptr;
  int32_t shard = 0;
  size_t row = 0;                                          // of its stream
  std::unique_ptr<consumer::ConsumerAgent> now = nullptr;  // begins behind all there is
  // Begins at what came in the rate window; null: nothing can have come.
  std::unique_ptr<consumer::ConsumerAgent> before = nullptr;
};

json ToJson(const Head& head) {
  const consumer::ConsumerAgent& agent = *head.now;
  json s = {{"shard", head.shard}, {"state", std::string(consumer::ShardStateName(agent.state()))}};
  if (const auto position = agent.position()) {
    s["messages"] = position->number;
    s["bytes"] = position->byte;
    s["position"] = position->ToString();
    const auto from = head.before != nullptr ? head.before->position() : std::nullopt;
    const auto rate = [](int64_t now, int64_t then) {
      return static_cast<double>(std::max<int64_t>(0, now - then)) / kRateWindow.seconds();
    };
    s["messages_per_s"] = from ? rate(position->number, from->number) : 0.0;
    s["bytes_per_s"] = from ? rate(position->byte, from->byte) : 0.0;
  }
  if (const int64_t as_of = agent.as_of().micros(); as_of > 0) {
    s["as_of_us"] = as_of;
    s["age_ms"] = std::max<int64_t>(0, ReadWallClock().micros() - as_of) / 1000;
  }
  if (!agent.status().ok()) s["error"] = agent.status().message();
  return s;
}

}  // namespace

CellLook::CellLook(DeploymentCell where, std::string stream)
    : where_(std::move(where)), stream_(std::move(stream)) {}

CellLook::~CellLook() {
  heads_.reset();
  heads_loop_.RunOnce();  // what was posted on the way down ends here
}

json CellLook::Look() {
  auto cell = Ask();
  if (cell.ok()) return std::move(*cell);
  return {{"name", where_.name.empty() ? where_.scheduler : where_.name},
          {"error", cell.status().message()},
          {"processes", json::array()}};
}

Status CellLook::OpenHeads() {
  if (heads_ != nullptr) return OkStatus();
  auto session =
      std::make_unique<session::Session>(&heads_loop_, session::Options{.cell = where_.scheduler});
  std::optional<Status> started;
  const Scope scope;
  session->Start(kCallTimeout, scope.Bind([&](Status status) { started = std::move(status); }));
  heads_loop_.RunUntil([&] { return started.has_value(); }, MonotonicTime::Max());
  TAILCAST_RETURN_IF_ERROR(*started);
  heads_ = std::move(session);
  return OkStatus();
}

// Where a consumer of this cell that wants only new messages would begin: what the cell has.
json CellLook::Heads(const cell::CellView& view, const Status& open) {
  std::vector<Head> heads;
  json streams = json::array();
  for (const v1::StreamConfig& stream : view.streams()) {
    if (!stream_.empty() && stream.name() != stream_) continue;
    json& one = streams.emplace_back(
        json::object({{"stream", stream.name()},
                      {"source", stream.source()},
                      {"chunk_size", stream.chunk_size_by_rate() ? 0 : stream.chunk_size()},
                      {"shards", json::array()}}));
    if (!open.ok()) one["unknown"] = true;
    const int32_t room = std::max(0, kHeadsMax - static_cast<int32_t>(heads.size()));
    const int32_t shown = open.ok() ? std::min({stream.shards(), kShardsShownMax, room}) : 0;
    one["shards_not_shown"] = stream.shards() - shown;
    for (int32_t i = 0; i < shown; ++i) {
      heads.push_back({.config = &stream, .shard = i, .row = streams.size() - 1});
    }
  }
  const Scope scope;
  const auto start = [&](const Head& head, const consumer::StartPoint& point) {
    consumer::AgentOptions options;
    if (head.config->chunk_size() > 0) options.chunk_size = head.config->chunk_size();
    auto agent = std::make_unique<consumer::ConsumerAgent>(
        heads_->ports(), stream::ShardId{stream::IdOf(*head.config), head.shard}, options,
        scope.Bind([] {}));
    agent->Start(point);
    return agent;
  };
  const MonotonicTime end = ReadMonotonicClock() + kHeadTimeout;
  for (Head& head : heads) head.now = start(head, consumer::StartPoint::End());
  const auto located = [&](std::unique_ptr<consumer::ConsumerAgent> Head::*which) {
    heads_loop_.RunUntil(
        [&] {
          return std::none_of(heads.begin(), heads.end(), [&](const Head& head) {
            const auto& agent = head.*which;
            return agent != nullptr && agent->state() == consumer::ShardState::kLocating;
          });
        },
        end);
  };
  located(&Head::now);
  // By the producer's clock, which wrote both the heartbeat and the messages' times. One that was
  // not heard of for so long publishes nothing.
  for (Head& head : heads) {
    const WallTime as_of = head.now->as_of();
    if (as_of.micros() > 0 && head.now->position() && ReadWallClock() - as_of < kRateWindow) {
      head.before = start(head, consumer::StartPoint::At(as_of - kRateWindow));
    }
  }
  located(&Head::before);
  for (const Head& head : heads) streams[head.row]["shards"].push_back(ToJson(head));
  heads.clear();
  heads_loop_.RunOnce();  // what was posted on the way down
  return streams;
}

Result<json> CellLook::Ask() {
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::OpenAt(where_.scheduler, kCallTimeout));
  const cell::CellView view = session->client().view();
  stream_names_.clear();
  for (const v1::StreamConfig& stream : view.streams()) stream_names_.push_back(stream.name());
  const Status open = OpenHeads();
  json cell = {{"name", view.cell()},
               {"scheduler", where_.scheduler},
               {"scheduler_incarnation", view.scheduler_incarnation()},
               {"processes", json::array()},
               {"hops", json::array()},
               {"operations", json::array()},
               {"streams", Heads(view, open)}};
  if (!open.ok()) {
    cell["heads_error"] = open.message();
    cell["heads_denied"] = open.code() == StatusCode::kPermissionDenied;
  }

  const v1::Ring& ring = view.metadata_ring();
  json& caches = cell["metadata_cache"] = {{"configuration_id", ring.configuration_id()},
                                           {"epoch", ring.epoch()},
                                           {"memcached", false},
                                           {"replicas", json::array()}};
  for (const v1::Replica& replica : ring.replicas()) {
    if (memcached::IsReplicaName(replica.name())) caches["memcached"] = true;
    caches["replicas"].push_back({{"name", replica.name()},
                                  {"there", !replica.rpc_address().empty()},
                                  {"whole", replica.whole()},
                                  {"excused", replica.excused()}});
  }

  AddLacking(view, cell);
  cell["left_out"] = json::array();
  for (const v1::StreamConfig& stream : view.streams()) {
    for (const std::string& out : stream.left_out()) {
      cell["left_out"].push_back({{"stream", stream.name()}, {"cell", out}});
    }
  }
  AddUsers(*session, stream_, cell);
  AskProcesses(*session, cell);
  return cell;
}

void CellLook::AskProcesses(CellSession& session, json& cell) const {
  const cell::CellView view = session.client().view();
  // All at once, so that one silent process costs one time-out.
  std::vector<std::unique_ptr<rpc::Client>> clients;
  std::vector<std::optional<Result<std::string>>> statuses(
      static_cast<size_t>(view.processes_size()));
  std::vector<std::optional<Result<std::string>>> lists(statuses.size());
  size_t waiting = 0;
  const Scope scope;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    clients.push_back(session.connector().MakeClient(process.rpc_address(), ""));
    ++waiting;
    clients.back()->Call("/tailcast.v1.Process/GetStatus",
                         v1::GetStatusRequest().SerializeAsString(), kCallTimeout,
                         scope.Bind([&, i](Result<std::string> r) {
                           statuses[i].emplace(std::move(r));
                           --waiting;
                         }));
    if (process.role() != v1::ROLE_READER) continue;
    v1::ListOperationsRequest list;
    list.set_scheduler_incarnation(view.scheduler_incarnation());
    ++waiting;
    clients.back()->Call("/tailcast.v1.Reader/ListOperations", list.SerializeAsString(),
                         kCallTimeout, scope.Bind([&, i](Result<std::string> r) {
                           lists[i].emplace(std::move(r));
                           --waiting;
                         }));
  }
  session.Until([&] { return waiting == 0; });

  std::map<std::pair<std::string, bool>, HopTotals> hops;  // target cell, cache layer
  Waits waits;
  std::set<std::string> there;
  for (size_t i = 0; i < statuses.size(); ++i) {
    const v1::ProcessInfo& process = view.processes(static_cast<int>(i));
    there.insert(process.name());
    json one = {{"name", process.name()},
                {"role", RoleOf(process.role())},
                {"pid", process.pid()},
                {"rpc", process.rpc_address()},
                {"metrics", process.metrics_address()},
                {"state", process.leaving() ? "leaving" : "up"}};
    if (!statuses[i]->ok()) {
      one["state"] = "silent";
      one["error"] = statuses[i]->status().ToString();
    } else if (auto reply = rpc::Parse<v1::GetStatusReply>(**statuses[i]); reply.ok()) {
      one["status"] = json::parse(reply->json(), nullptr, false);
      if (one["status"].is_object() && one["status"].contains("scheduler")) {
        json& known = one["status"]["scheduler"];
        if (known.is_object() && known.contains("disk")) {
          cell["disk"] = known["disk"];
          known.erase("disk");
        }
        if (known.is_object() && known.contains("operations")) {
          cell["operations"] = known["operations"];
          known.erase("operations");
          cell["retention_waits"] = known.value("retention_waits", json::array());
          known.erase("retention_waits");
          cell["stamps"] = known.value("stamps", json::array());
          known.erase("stamps");
          cell["slow_workers"] = known.value("slow_workers", json::array());
          known.erase("slow_workers");
          cell["leaving"] = known.value("leaving", json::array());
          known.erase("leaving");
        }
      }
    }
    cell["processes"].push_back(std::move(one));
    if (!lists[i] || !lists[i]->ok()) continue;
    const auto list = rpc::Parse<v1::ListOperationsReply>(**lists[i]);
    if (!list.ok()) continue;
    for (const auto& report : list->reports()) {
      if (report.state() != v1::OPERATION_RUNNING) continue;
      HopTotals& hop =
          hops[{report.operation().target_cell(), report.operation().layer() == v1::LAYER_CACHE}];
      ++hop.running;
      hop.behind_bytes +=
          std::max<int64_t>(0, report.source_data_length() - report.data_length()) +
          std::max<int64_t>(0, report.source_index_length() - report.index_length());
      hop.behind_us = std::max(hop.behind_us, report.lag_us());
      hop.delay_us = std::max(hop.delay_us, report.delay_us());
      if (report.waits_for() == v1::WAITS_FOR_NOBODY) continue;
      ++hop.waiting;
      if (report.waits_us() >= hop.longest.waits_us()) hop.longest = report;
      waits[KeyOf(report.operation())] = report;
    }
  }
  AddWaits(waits, cell["operations"]);
  for (const std::string& name : where_.processes) {
    if (there.contains(name)) continue;
    cell["processes"].push_back(
        {{"name", name}, {"role", name.substr(0, name.rfind('-'))}, {"pid", 0}, {"state", "down"}});
  }
  for (const auto& [key, hop] : hops) {
    cell["hops"].push_back(
        {{"to", key.first},
         {"layer", stream::LayerName(key.second ? stream::Layer::kCache : stream::Layer::kPrimary)},
         {"operations", hop.running},
         {"behind_bytes", hop.behind_bytes},
         {"behind_ms", static_cast<double>(hop.behind_us) / 1e3},
         {"confirmed_after_ms", static_cast<double>(hop.delay_us) / 1e3}});
    if (hop.waiting == 0) continue;
    json& one = cell["hops"].back();
    one["waiting"] = hop.waiting;
    AddWait(hop.longest, one);
    one["waits_stream"] = hop.longest.operation().stream();
  }
}

}  // namespace tailcast::app
