#include "tailcast/inspect/stat.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/base/check.h"
#include "tailcast/base/strong.h"
#include "tailcast/inspect/text.h"

namespace tailcast::inspect {
namespace {

// What the counters say that somebody should look at.
void RemarkCounters(Instance instance, ReplicaStat& stat) {
  const auto remark = [&](const std::string& key, const std::string& noun,
                          const std::string& rest) {
    const uint64_t number = stat.Value(key);
    if (number > 0) stat.remarks.push_back(Counted(number, noun) + " " + rest);
  };
  remark("mismatches", "value", "contradicted what was written: DataLoss; both were dropped");
  remark("repair_mismatches", "value", "of other replicas contradicted its own: DataLoss");
  remark("refused_no_slot", "value", "refused for want of memory; give it more");
  remark("refused_overflow", "value",
         "refused because buckets overflowed; give it more memory, or more replicas");
  remark("refused_too_large", "value", "refused: larger than 64 KB");
  remark("refused_malformed", "value", "refused: malformed");
  remark("repair_refused", "value",
         "of other replicas found no room; it can't become whole without more memory");
  if (instance == Instance::kMetadata) {
    remark(
        "collected", "value",
        "collected before their time; readers ask the primary layer instead; give it more memory");
  }
}

ReplicaStat StatOf(Instance instance, const cache::RingConfig& ring, const cache::Replica& replica,
                   const Result<v1::CacheStatReply>& reply) {
  ReplicaStat stat;
  stat.name = replica.name;
  stat.incarnation = replica.incarnation;
  if (replica.rpc_address.empty()) {
    stat.state = "down";
    stat.remarks.push_back(
        "has not registered: is its process up, and does it reach the scheduler?");
    return stat;
  }
  if (!reply.ok()) {
    stat.state = "silent";
    stat.remarks.push_back("does not answer at " + replica.rpc_address + ": " +
                           reply.status().message());
    return stat;
  }
  stat.answered = true;
  stat.incarnation = ProcessIncarnation{reply->generation()};
  stat.values = {reply->values().begin(), reply->values().end()};
  stat.configuration_id = cache::ConfigurationId{reply->configuration_id()};
  stat.epoch = cache::CacheEpoch{stat.Value("epoch")};
  if (stat.incarnation != replica.incarnation) {
    stat.state = "anew";
    stat.remarks.push_back("has begun anew since the registry heard of it; it will register");
  } else if (stat.Value("serving") == 0) {
    stat.state = "out";
    stat.remarks.push_back("serves nothing: no ring of configuration " +
                           std::to_string(Raw(stat.configuration_id)) +
                           " names it, or it did not run for long and waits for the registry");
  } else if (!replica.in_ring) {
    const bool comes = PhaseOf(ring.configuration_id) == cache::RingPhase::kBoth;
    stat.state = comes ? "coming" : "going";
    stat.remarks.push_back(comes ? "joins the ring, and " + reply->repair()
                                 : std::string("leaves the ring; it is read no more"));
  } else {
    const bool copied = stat.Value("copied") > 0;
    // Of chunks whatever is found is right, so the registry calls all replicas of the data cache
    // whole; one that copies has still less than it should.
    stat.whole = replica.whole;
    stat.state = replica.whole && (copied || instance == Instance::kMetadata) ? "whole"
                 : copied                                                     ? "copied"
                 : stat.Value("copying") > 0                                  ? "copying"
                 : stat.Value("rests") > 0                                    ? "resting"
                                                                              : "idle";
    if (stat.state != "whole") {
      stat.remarks.push_back(reply->repair() +
                             (instance == Instance::kMetadata
                                  ? "; until it is whole its \"absent\" and its votes do not count"
                                  : "; until then what it misses is read of others"));
    }
    const bool epochs = HasEpochs(instance);
    if (stat.configuration_id != ring.configuration_id || (epochs && stat.epoch != ring.epoch)) {
      const auto text = [epochs](cache::ConfigurationId id, cache::CacheEpoch epoch) {
        return std::to_string(Raw(id)) + (epochs ? " and epoch " + std::to_string(Raw(epoch)) : "");
      };
      stat.remarks.push_back("knows configuration " + text(stat.configuration_id, stat.epoch) +
                             ", the registry says " + text(ring.configuration_id, ring.epoch));
    }
  }
  RemarkCounters(instance, stat);
  return stat;
}

std::string EpochText(const StatReport& report) {
  return HasEpochs(report.instance) ? ", epoch " + std::to_string(Raw(report.epoch)) : "";
}

}  // namespace

uint64_t ReplicaStat::Value(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? 0 : found->second;
}

uint32_t StatReport::answered() const {
  return static_cast<uint32_t>(std::count_if(
      replicas.begin(), replicas.end(), [](const ReplicaStat& stat) { return stat.answered; }));
}

uint32_t StatReport::whole() const {
  return static_cast<uint32_t>(std::count_if(replicas.begin(), replicas.end(),
                                             [](const ReplicaStat& stat) { return stat.whole; }));
}

StatReport MakeStat(Instance instance, const cache::RingConfig& ring,
                    const std::vector<Result<v1::CacheStatReply>>& replies) {
  TAILCAST_CHECK(replies.size() == ring.replicas.size(), "a reply for each replica");
  StatReport report;
  report.instance = instance;
  report.configuration_id = ring.configuration_id;
  report.epoch = ring.epoch;
  report.members = static_cast<uint64_t>(
      std::count_if(ring.replicas.begin(), ring.replicas.end(),
                    [](const cache::Replica& replica) { return replica.in_ring; }));
  for (size_t i = 0; i < replies.size(); ++i) {
    report.replicas.push_back(StatOf(instance, ring, ring.replicas[i], replies[i]));
  }
  return report;
}

std::string StatText(const std::vector<StatReport>& reports) {
  std::string text;
  for (const StatReport& report : reports) {
    if (!text.empty()) text += "\n";
    text += std::string(InstanceName(report.instance)) + " cache: configuration " +
            std::to_string(Raw(report.configuration_id)) + EpochText(report) + "; " +
            std::to_string(report.whole()) + " of " + Counted(report.members, "replica") +
            " whole\n";
    switch (PhaseOf(report.configuration_id)) {
      case cache::RingPhase::kSettled:
        break;
      case cache::RingPhase::kBoth:
        text += "the ring changes: both are written, the old one is read, the new one is filled\n";
        break;
      case cache::RingPhase::kNew:
        text += "the ring changes: both are written, the new one is read\n";
        break;
    }
    std::vector<std::vector<std::string>> rows{{"replica", "life", "state", "cf/ep", "live", "size",
                                                "memory", "slab", "expd", "coll", "over", "refd",
                                                "mism"}};
    std::string remarks;
    for (const ReplicaStat& stat : report.replicas) {
      const std::string life =
          stat.incarnation == ProcessIncarnation::kNone ? "-" : Hex(Raw(stat.incarnation) >> 48, 4);
      std::vector<std::string> row{stat.name, life, stat.state};
      if (stat.answered) {
        const auto value = [&](const char* key) { return Short(stat.Value(key)); };
        row.insert(row.end(),
                   {Short(Raw(stat.configuration_id)) + "/" +
                        (HasEpochs(report.instance) ? Short(Raw(stat.epoch)) : "-"),
                    value("live"), value("live_bytes"),
                    value("memory_used_bytes") + "/" + value("memory_bytes"), value("slabs_used"),
                    value("expired"), value("collected"), value("overflowed"), value("refused"),
                    Short(stat.Value("mismatches") + stat.Value("repair_mismatches"))});
      } else {
        row.resize(rows.front().size(), "-");
      }
      rows.push_back(std::move(row));
      for (const std::string& remark : stat.remarks) {
        remarks += Wrapped(2, stat.name + ": " + remark);
      }
    }
    text += TableText(0, rows, {1, 2}) + remarks;
  }
  return text + "\n" +
         Wrapped(
             0,
             "life: of its incarnation; cf/ep: configuration and epoch that it knows; live, size: "
             "values and their bytes; memory: used of all; slab: slabs in use; expd, coll: values "
             "that expired, were collected; over: overflowed now; refd: refused; mism: mismatches "
             "(DataLoss)");
}

std::string StatJson(const std::vector<StatReport>& reports) {
  nlohmann::json caches = nlohmann::json::array();
  for (const StatReport& report : reports) {
    nlohmann::json one = {{"cache", std::string(InstanceName(report.instance))},
                          {"configuration_id", Raw(report.configuration_id)},
                          {"members", report.members},
                          {"whole_replicas", report.whole()},
                          {"replicas", nlohmann::json::array()}};
    if (HasEpochs(report.instance)) one["epoch"] = Raw(report.epoch);
    for (const ReplicaStat& stat : report.replicas) {
      nlohmann::json r = {{"name", stat.name},   {"incarnation", Hex(Raw(stat.incarnation), 16)},
                          {"state", stat.state}, {"answered", stat.answered},
                          {"whole", stat.whole}, {"remarks", stat.remarks}};
      if (stat.answered) {
        r["configuration_id"] = Raw(stat.configuration_id);
        if (HasEpochs(report.instance)) r["epoch"] = Raw(stat.epoch);
        r["values"] = stat.values;
      }
      one["replicas"].push_back(std::move(r));
    }
    caches.push_back(std::move(one));
  }
  return nlohmann::json({{"caches", std::move(caches)}})
      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tailcast::inspect
