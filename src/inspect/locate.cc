#include "tailcast/inspect/locate.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/ring.h"
#include "tailcast/inspect/contents.h"
#include "tailcast/inspect/text.h"

namespace tailcast::inspect {
namespace {

const char* RuleText(cache::MergeRule rule) {
  switch (rule) {
    case cache::MergeRule::kLongerWins:
      return "longer wins";
    case cache::MergeRule::kMaxLanes:
      return "maximum of each lane";
    case cache::MergeRule::kMaxBytes:
      return "maximum";
  }
  return "unknown";
}

std::string WantedText(const Wanted& wanted) {
  return std::string(InstanceName(wanted.instance)) + " " +
         (wanted.name.has_value() ? wanted.name->ToString() : KeyText(wanted.key));
}

OwnerReport ReportOf(const cache::Replica& replica, const Result<v1::CacheLocateReply>& answer) {
  OwnerReport owner;
  owner.name = replica.name;
  if (!answer.ok()) {
    owner.state = replica.rpc_address.empty() ? "down" : "silent";
    owner.error = replica.rpc_address.empty() ? "" : answer.status().message();
    return owner;
  }
  owner.answered = true;
  if (!answer->serving()) {
    owner.state = "out";
  } else if (answer->incarnation() != Raw(replica.incarnation)) {
    owner.state = "anew";
  } else {
    owner.whole = replica.whole;
    owner.state = replica.whole ? "whole" : "copying";
  }
  owner.bucket = answer->bucket();
  owner.found = answer->found();
  if (!owner.found) return owner;
  owner.value = answer->value();
  owner.crc = answer->crc();
  owner.version = answer->version();
  owner.remaining = Duration::Millis(answer->remaining_ms());
  owner.overflowed = answer->overflowed();
  owner.rule = static_cast<cache::MergeRule>(answer->rule());
  owner.damaged = answer->rule() > static_cast<uint32_t>(cache::MergeRule::kMaxBytes) ||
                  !WellFormed(owner.rule, owner.value) ||
                  Crc32cExtend(0, owner.value.data(), owner.value.size()) != owner.crc;
  return owner;
}

// Joins what the owners have, and finds those that contradict each other.
void Join(LocateReport& report) {
  std::string of;  // whose value it is
  for (const OwnerReport& owner : report.owners) {
    if (owner.damaged) {
      report.contradicts = true;
      report.verdict.push_back("CONTRADICTION: what " + owner.name +
                               " has does not fit its own check sum; readers ignore it.");
    }
    if (!owner.found || owner.damaged) continue;
    if (!report.value.has_value()) {
      report.value = owner.value;
      report.rule = owner.rule;
      of = owner.name;
    } else if (owner.rule != report.rule || MergeInto(report.rule, *report.value, owner.value) ==
                                                cache::MutationResult::kMismatch) {
      report.contradicts = true;
      report.verdict.push_back("CONTRADICTION: " + of + " and " + owner.name +
                               " hold values of which neither is the beginning of the other "
                               "(DataLoss); readers are given one of them.");
    }
  }
}

// How those that answered differ without contradiction.
void Differences(LocateReport& report) {
  for (const OwnerReport& owner : report.owners) {
    if (!owner.answered || owner.damaged || !report.value.has_value()) continue;
    if (owner.found && owner.value == *report.value) continue;
    report.alike = false;
    if (report.contradicts) continue;
    if (!owner.found) {
      report.verdict.push_back(owner.name + " has not got it.");
    } else if (owner.value.size() < report.value->size()) {
      report.verdict.push_back(owner.name + " has " + std::to_string(owner.value.size()) + " of " +
                               Counted(report.value->size(), "byte") + ".");
    } else {
      report.verdict.push_back(owner.name + " has an older value.");
    }
  }
}

}  // namespace

uint32_t LocateReport::answered() const {
  return static_cast<uint32_t>(std::count_if(
      owners.begin(), owners.end(), [](const OwnerReport& owner) { return owner.answered; }));
}

std::vector<size_t> OwnersOf(const cache::RingConfig& ring, const cache::Key& key) {
  const cache::Owners owners = cache::HashRing(ring).OwnersOf(key);
  return {owners.replica.begin(), owners.replica.begin() + owners.count};
}

LocateReport Compare(const Wanted& wanted, const cache::RingConfig& ring,
                     const std::vector<Result<v1::CacheLocateReply>>& answers) {
  LocateReport report;
  report.wanted = wanted;
  report.configuration_id = ring.configuration_id;
  report.epoch = ring.epoch;
  const std::vector<size_t> owners = OwnersOf(ring, wanted.key);
  TAILCAST_CHECK(owners.size() == answers.size(), "an answer for each owner");
  uint32_t whole = 0;
  for (size_t i = 0; i < owners.size(); ++i) {
    report.owners.push_back(ReportOf(ring.replicas[owners[i]], answers[i]));
    whole += report.owners.back().whole ? 1 : 0;
  }
  const auto needed = static_cast<uint32_t>(std::min<size_t>(owners.size(), 2));
  report.complete = needed > 0 && whole >= needed;
  Join(report);
  Differences(report);
  const std::string counted = std::to_string(whole) + " of " + Counted(owners.size(), "owner") +
                              (whole == 1 ? " counts" : " count");
  if (report.complete) {
    report.verdict.insert(report.verdict.begin(),
                          report.value.has_value()
                              ? "Complete: " + counted + (report.alike ? ", all alike." : ".")
                              : "Complete: there is no such value; " + counted + ".");
  } else if (owners.empty()) {
    report.verdict.push_back("Partial: the ring has no replicas.");
  } else {
    report.verdict.insert(
        report.verdict.begin(),
        "PARTIAL: " + counted + ", and " + std::to_string(needed) + (needed == 1 ? " is" : " are") +
            " needed: " +
            (report.value.has_value()
                 ? "what was found is a lower bound, there may be more."
                 : "nothing was found, which does not say that there is nothing."));
  }
  if (PhaseOf(ring.configuration_id) != cache::RingPhase::kSettled) {
    report.verdict.push_back(
        "The ring changes: these are the owners in the one that is read; writes reach those of the "
        "other one, too.");
  }
  return report;
}

std::string LocateText(const LocateReport& report, WallTime now) {
  std::string text = WantedText(report.wanted) + "\n";
  text += "  key " + KeyText(report.wanted.key) + ", ring of configuration " +
          std::to_string(Raw(report.configuration_id));
  if (HasEpochs(report.wanted.instance)) text += ", epoch " + std::to_string(Raw(report.epoch));
  text += "\n";
  std::vector<std::vector<std::string>> rows{
      {"owner", "state", "bucket", "bytes", "crc32c", "time left", "version", ""}};
  for (const OwnerReport& owner : report.owners) {
    if (!owner.answered) {
      rows.push_back({owner.name, owner.state, "-", "-", "-", "-", "-", ""});
    } else if (!owner.found) {
      rows.push_back(
          {owner.name, owner.state, std::to_string(owner.bucket), "absent", "-", "-", "-", ""});
    } else {
      rows.push_back({owner.name, owner.state, std::to_string(owner.bucket),
                      std::to_string(owner.value.size()), Hex(owner.crc, 8),
                      SpanText(owner.remaining), std::to_string(owner.version),
                      owner.overflowed ? "overflowed" : ""});
    }
  }
  text += TableText(2, rows, {1, 7});
  for (const OwnerReport& owner : report.owners) {
    if (!owner.error.empty()) text += Wrapped(4, owner.name + ": " + owner.error);
  }
  for (const std::string& sentence : report.verdict) text += Wrapped(2, sentence);
  if (report.value.has_value() && report.wanted.name.has_value()) {
    for (const std::string& line : Describe(*report.wanted.name, *report.value, now)) {
      text += Wrapped(4, line);
    }
  }
  return text;
}

std::string LocateJson(const std::vector<LocateReport>& reports, WallTime now) {
  nlohmann::json all = nlohmann::json::array();
  for (const LocateReport& report : reports) {
    nlohmann::json one = {{"cache", std::string(InstanceName(report.wanted.instance))},
                          {"key", KeyText(report.wanted.key)},
                          {"configuration_id", Raw(report.configuration_id)},
                          {"found", report.value.has_value()},
                          {"complete", report.complete},
                          {"contradicts", report.contradicts},
                          {"alike", report.alike},
                          {"verdict", report.verdict},
                          {"owners", nlohmann::json::array()}};
    if (HasEpochs(report.wanted.instance)) one["epoch"] = Raw(report.epoch);
    if (report.wanted.name.has_value()) one["name"] = report.wanted.name->ToString();
    if (report.value.has_value()) {
      one["length"] = report.value->size();
      one["rule"] = RuleText(report.rule);
      if (report.wanted.name.has_value()) {
        one["contents"] = Describe(*report.wanted.name, *report.value, now);
      }
    }
    for (const OwnerReport& owner : report.owners) {
      nlohmann::json o = {{"name", owner.name},
                          {"state", owner.state},
                          {"answered", owner.answered},
                          {"whole", owner.whole},
                          {"found", owner.found}};
      if (!owner.error.empty()) o["error"] = owner.error;
      if (owner.answered) o["bucket"] = owner.bucket;
      if (owner.found) {
        o["length"] = owner.value.size();
        o["crc32c"] = Hex(owner.crc, 8);
        o["remaining_ms"] = owner.remaining.millis();
        o["version"] = owner.version;
        o["overflowed"] = owner.overflowed;
        o["damaged"] = owner.damaged;
      }
      one["owners"].push_back(std::move(o));
    }
    all.push_back(std::move(one));
  }
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string DumpSummary(const LocateReport& report) {
  std::string text = WantedText(report.wanted) + ": ";
  if (report.value.has_value()) {
    text += Counted(report.value->size(), "byte") + ", crc32c " +
            Hex(Crc32cExtend(0, report.value->data(), report.value->size()), 8) + ", " +
            RuleText(report.rule) + ". ";
  } else {
    text += "absent. ";
  }
  for (const std::string& sentence : report.verdict) text += sentence + " ";
  for (const OwnerReport& owner : report.owners) {
    if (!owner.answered) {
      text += owner.name + " is " + owner.state +
              (owner.error.empty() ? "" : " (" + owner.error + ")") + ". ";
    }
  }
  text.pop_back();
  return text;
}

}  // namespace tailcast::inspect
