#include "tailcast/cache/bench_asked.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <ios>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

namespace tailcast::cache {
namespace {

// The counters of google-benchmark itself that are of use here.
constexpr char kRate[] = "items_per_second";
constexpr char kTime[] = "real_us";  // of an iteration
constexpr char kP99[] = "p99_us", kP99Before[] = "before_p99_us";

enum class Bound : uint8_t { kAtLeast, kAtMost, kNone };

struct Value {
  const char* row = nullptr;  // as it is registered; null: there is none
  const char* counter = nullptr;
};

struct Asked {
  const char* what;
  Bound bound;
  double asked;
  Value here;
  Value per = {};        // `here` is divided by it: a ratio
  Value memcached = {};  // the same of memcached
  Value floor = {};      // the same without the client: by the fabric alone, or copy and checksum
};

constexpr char kServerRate[] = "items_per_server_cpu_s";
constexpr Asked kAsked[] = {
    {"tcp reads/s, depth 64",
     Bound::kAtLeast,
     600e3,
     {"ReadChunks/tcp/depth:64/MB:64", kRate},
     {},
     {"MemcachedGet/tcp/depth:64", kRate},
     {"FabricRead/tcp/depth:64", kRate}},
    {"tcp reads/s, depth 1",
     Bound::kAtLeast,
     45e3,
     {"ReadChunks/tcp/depth:1/MB:64", kRate},
     {},
     {"MemcachedGet/tcp/depth:1", kRate},
     {"FabricRead/tcp/depth:1", kRate}},
    {"tcp reads per server CPU s, times memcached's",
     Bound::kAtLeast,
     1.3,
     {"ReadChunks/tcp/depth:64/MB:64", kServerRate},
     {"MemcachedGet/tcp/depth:64", kServerRate}},
    {"shm reads/s, hot",
     Bound::kAtLeast,
     2.5e6,
     {"ReadChunks/shm/depth:16/MB:16", kRate},
     {},
     {"MemcachedGet/unix/depth:16", kRate},
     {"CopyAndChecksum/MB:16", kRate}},
    {"shm reads/s, out of 1 GB",
     Bound::kAtLeast,
     1e6,
     {"ReadChunks/shm/depth:16/MB:1024", kRate},
     {},
     {},
     {"CopyAndChecksum/MB:1024", kRate}},
    {"us for a value mutated, shm", Bound::kAtMost, 60, {"MutateValue/shm", kTime}},
    {"us for a value mutated, tcp", Bound::kAtMost, 60, {"MutateValue/tcp", kTime}},
    {"chunks mutated/s, shm", Bound::kAtLeast, 150e3, {"MutateChunks/shm/in_flight:4", kRate}},
    {"chunks mutated/s, tcp", Bound::kAtLeast, 150e3, {"MutateChunks/tcp/in_flight:4", kRate}},
    {"CPU us for a flush, producer, shm", Bound::kAtMost, 120, {"Flush8KB/shm", "client_us"}},
    {"CPU us for a flush, all servers, shm", Bound::kAtMost, 120, {"Flush8KB/shm", "server_us"}},
    {"CPU us for a flush, producer, tcp", Bound::kAtMost, 120, {"Flush8KB/tcp", "client_us"}},
    {"CPU us for a flush, all servers, tcp", Bound::kAtMost, 120, {"Flush8KB/tcp", "server_us"}},
    {"readers' p99 beside writes, times before, shm",
     Bound::kNone,
     0,
     {"ReadsBesideWrites/shm", kP99},
     {"ReadsBesideWrites/shm", kP99Before}},
    {"readers' p99 beside writes, times before, tcp",
     Bound::kNone,
     0,
     {"ReadsBesideWrites/tcp", kP99},
     {"ReadsBesideWrites/tcp", kP99Before}},
    {"writers' p99 beside reads, times before, shm",
     Bound::kNone,
     0,
     {"WritesBesideReads/shm", kP99},
     {"WritesBesideReads/shm", kP99Before}},
    {"writers' p99 beside reads, times before, tcp",
     Bound::kNone,
     0,
     {"WritesBesideReads/tcp", kP99},
     {"WritesBesideReads/tcp", kP99Before}},
    {"writers' p99 beside 64 who come and go, times, shm",
     Bound::kAtMost,
     2,
     {"WritesBesideComingAndGoing/shm/readers:64", kP99},
     {"WritesBesideComingAndGoing/shm/readers:64", kP99Before}},
    {"writers' p99 beside 64 who come and go, times, tcp",
     Bound::kAtMost,
     2,
     {"WritesBesideComingAndGoing/tcp/readers:64", kP99},
     {"WritesBesideComingAndGoing/tcp/readers:64", kP99Before}},
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// 612345 as 612,345; less than a thousand with three digits.
std::string Text(const std::optional<double>& value) {
  if (!value.has_value()) return "-";
  std::ostringstream out;
  if (*value < 1000) {
    out << std::fixed << std::setprecision(*value < 10 ? 2 : *value < 100 ? 1 : 0) << *value;
    return out.str();
  }
  std::string digits = std::to_string(std::llround(*value));
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

void Line(std::ostream& out, const std::string& what, const std::array<std::string, 4>& figures,
          const std::string& verdict) {
  out << std::left << std::setw(52) << what << std::right;
  for (const std::string& figure : figures) out << std::setw(11) << figure;
  out << "  " << verdict << '\n';
}

}  // namespace

void AskedTable::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
    std::string row = run.run_name.function_name;
    if (!run.run_name.args.empty()) row += "/" + run.run_name.args;
    auto& counters = values_[row];
    for (const auto& [name, counter] : run.counters) counters[name].push_back(counter.value);
    counters[kTime].push_back(run.GetAdjustedRealTime() * 1e6 /
                              benchmark::GetTimeUnitMultiplier(run.time_unit));
  }
  shown_->ReportRuns(runs);
}

void AskedTable::Finalize() {
  shown_->Finalize();
  const auto find = [this](const Value& value) -> std::optional<double> {
    if (value.row == nullptr) return std::nullopt;
    const auto row = values_.find(value.row);
    if (row == values_.end()) return std::nullopt;
    const auto counter = row->second.find(value.counter);
    if (counter == row->second.end()) return std::nullopt;
    return Median(counter->second);
  };
  std::ostream& out = GetOutputStream();
  bool begun = false;
  for (const Asked& asked : kAsked) {
    std::optional<double> here = find(asked.here);
    if (asked.per.row != nullptr) {
      const double per = find(asked.per).value_or(0);
      here = here.has_value() && per > 0 ? std::optional(*here / per) : std::nullopt;
    }
    if (!here.has_value()) continue;
    if (!std::exchange(begun, true)) {
      out << '\n';
      Line(out, "", {"asked", "here", "memcached", "floor"}, "");
    }
    const bool met = asked.bound == Bound::kAtLeast ? *here >= asked.asked : *here <= asked.asked;
    std::string bound = "-", verdict;
    if (asked.bound != Bound::kNone) {
      bound = Text(asked.asked);
      verdict = met ? "yes" : "NO";
    }
    if (find({asked.here.row, "failures"}).value_or(0) > 0) verdict = "FAILURES";
    Line(out, asked.what, {bound, Text(here), Text(find(asked.memcached)), Text(find(asked.floor))},
         verdict);
  }
  out.flush();
}

}  // namespace tailcast::cache
