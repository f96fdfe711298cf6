#include "tailcast/scheduler/scheduler_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tailcast/base/strong.h"

namespace tailcast::scheduler {

void ExportCounters(const SchedulerCore& core, MetricRegistry& metrics) {
  const CoreCounters c = core.counters();
  const auto set = [&](const char* name, const char* help, int64_t value,
                       const MetricLabels& labels = {}) {
    Counter& counter = metrics.GetCounter(name, help, labels);
    counter.Add(value - counter.value());
  };
  constexpr const char* kEvents = "tailcast_scheduler_operations_total";
  constexpr const char* kHelp = "What happened to operations, by event.";
  set(kEvents, kHelp, c.started, {{"event", "started"}});
  set(kEvents, kHelp, c.done, {{"event", "done"}});
  set(kEvents, kHelp, c.restarted, {{"event", "restarted"}});
  set(kEvents, kHelp, c.adopted, {{"event", "adopted"}});
  set(kEvents, kHelp, c.shed, {{"event", "shed"}});
  set(kEvents, kHelp, c.left, {{"event", "left"}});
  set(kEvents, kHelp, c.slow, {{"event", "slow"}});
  set(kEvents, kHelp, c.throttled, {{"event", "throttled"}});
  set(kEvents, kHelp, c.no_worker, {{"event", "no_worker"}});
  set(kEvents, kHelp, c.superseded, {{"event", "superseded"}});
  set(kEvents, kHelp, c.given_up, {{"event", "given_up"}});
  set(kEvents, kHelp, c.data_loss, {{"event", "data_loss"}});
  set(kEvents, kHelp, c.refused, {{"event", "refused"}});
  set(kEvents, kHelp, c.copied_again, {{"event", "copied_again"}});
  set(kEvents, kHelp, c.stale_reports, {{"event", "stale_report"}});
  set(kEvents, kHelp, c.foreign_operations, {{"event", "foreign"}});
  set("tailcast_scheduler_files_put_off_total",
      "Files that were not scheduled yet because their shard had too many that a cell lacks.",
      c.put_off);
  set("tailcast_scheduler_readers_lost_total", "Readers that stopped answering.", c.readers_lost);
  metrics.GetGauge("tailcast_scheduler_operations_unfinished", "Operations that are not done.")
      .Set(core.unfinished());
}

std::string StatusJson(const std::string& cell, stream::SchedulerIncarnation incarnation,
                       MonotonicTime now, const SchedulerCore* core, const RetentionCore* retention,
                       const std::vector<StampWatch::Off>& stamps, const LeaverCore* leavers,
                       const DiskStatus& on_disk) {
  nlohmann::json status;
  status["cell"] = cell;
  nlohmann::json& disk = status["disk"] = nlohmann::json::object();
  if (on_disk.room) {
    disk["text"] = on_disk.room->text;
    disk["free_bytes"] = on_disk.room->free_bytes;
    disk["total_bytes"] = on_disk.room->total_bytes;
    disk["full"] = on_disk.room->low;
  }
  if (on_disk.unseen) {
    disk["unseen_ms"] = on_disk.unseen->since.millis();
    disk["unseen_why"] = on_disk.unseen->why;
  }
  if (!on_disk.no_room.ok()) disk["no_room"] = on_disk.no_room.message();
  disk["failing"] = on_disk.failing;
  disk["unread"] = on_disk.unread;
  if (core == nullptr) return status.dump();
  status["scheduler_incarnation"] = Raw(incarnation);
  status["unfinished"] = core->unfinished();
  nlohmann::json operations = nlohmann::json::array();
  for (const auto& [target, op] : core->operations()) {
    nlohmann::json o;
    o["stream"] = target.file.shard.stream.name;
    o["shard"] = target.file.shard.shard;
    o["file"] = target.file.stem.seq;
    o["layer"] = std::string(stream::LayerName(target.layer));
    o["target"] = target.cell;
    o["phase"] = std::string(PhaseName(op.phase));
    o["opened"] = op.opened;  // by its writer: whoever had the file before is fenced
    o["reader"] = op.workers.reader;
    o["writer"] = op.workers.writer;
    o["written_bytes"] = op.written[0];
    o["source_bytes"] = std::max(op.source[0], core->SealedBytes(target));
    o["failures"] = op.failures;
    o["load_bytes_per_s"] = op.counted;
    if (!op.message.empty()) o["message"] = op.message;
    operations.push_back(std::move(o));
  }
  status["operations"] = std::move(operations);
  nlohmann::json slow = nlohmann::json::array();
  for (const WorkerSpeed::Slow& one : core->workers().speed().NotHealthy(now)) {
    slow.push_back({{"role", one.worker.is_reader() ? "reader" : "writer"},
                    {"cell", one.worker.is_reader() ? cell : one.worker.cell},
                    {"name", one.worker.name},
                    {"state", std::string(SpeedStateName(one.state))},
                    {"took_ms", one.took.millis()},
                    {"peers_ms", one.peers.millis()},
                    {"remaining_ms", one.remaining.millis()}});
  }
  status["slow_workers"] = std::move(slow);
  nlohmann::json held = nlohmann::json::array();
  for (const RetentionHeld& h : retention->Held()) {
    held.push_back({{"stream", h.shard.stream.name},
                    {"shard", h.shard.shard},
                    {"cell", h.cell},
                    {"lacking_file", h.lacking},
                    {"for_ms", h.since.millis()}});
  }
  status["retention_waits"] = std::move(held);
  nlohmann::json wrong = nlohmann::json::array();
  for (const StampWatch::Off& off : stamps) {
    wrong.push_back({{"stream", off.shard.stream.name},
                     {"shard", off.shard.shard},
                     {"file", off.seq},
                     {"ahead_ms", off.ahead.millis()}});
  }
  status["stamps"] = std::move(wrong);
  nlohmann::json leaving = nlohmann::json::array();
  for (const LeaverRow& row : leavers->Rows()) {
    leaving.push_back({{"stream", row.id.stream.name},
                       {"cell", row.id.cell},
                       {"phase", std::string(LeaverPhaseName(row.phase))}});
    if (row.phase != LeaverPhase::kKeeping) continue;
    leaving.back()["shard"] = row.shard;
    leaving.back()["lacking_file"] = row.lacking;
    if (row.why == LastCopyWhy::kUnreadThere) leaving.back()["unread"] = "there";
    if (row.why == LastCopyWhy::kUnreadHere) leaving.back()["unread"] = "source";
  }
  status["leaving"] = std::move(leaving);
  return status.dump();
}

}  // namespace tailcast::scheduler
