#include "tailcast/copytree/import.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "tailcast/base/nearest.h"

namespace tailcast::copytree {
namespace {

struct Measure {
  std::optional<double> usd_per_gb, rtt_ms, bandwidth_gbps;
};

// What is known of each pair of clusters. A thousand clusters have a million pairs, so clusters are
// numbers here, in the order in which they came.
class Measures {
 public:
  uint32_t NumberOf(const std::string& name) {
    const auto [at, is_new] = numbers_.emplace(name, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return at->second;
  }
  Measure& Of(uint32_t from, uint32_t to) { return pairs_[Key(from, to)]; }
  const Measure* Find(const std::string& from, const std::string& to) const {
    const auto a = numbers_.find(from), b = numbers_.find(to);
    if (a == numbers_.end() || b == numbers_.end()) return nullptr;
    const auto pair = pairs_.find(Key(a->second, b->second));
    return pair == pairs_.end() ? nullptr : &pair->second;
  }
  const std::vector<std::string>& names() const { return names_; }
  // A round trip takes as long from either end: where a table has it from one of them, both get it.
  // How many did.
  int ShareRoundTrips() {
    int shared = 0;
    for (auto& [key, measure] : pairs_) {
      const auto back = pairs_.find(key << 32 | key >> 32);
      if (back == pairs_.end() || !measure.rtt_ms || back->second.rtt_ms) continue;
      back->second.rtt_ms = measure.rtt_ms;
      ++shared;
    }
    return shared;
  }

 private:
  static uint64_t Key(uint32_t from, uint32_t to) { return uint64_t{from} << 32 | to; }

  // Never walked where the order matters.
  std::unordered_map<std::string, uint32_t> numbers_;
  std::unordered_map<uint64_t, Measure> pairs_;
  std::vector<std::string> names_;
};

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// One line's fields. False: a quote is not closed.
bool Split(std::string_view line, std::vector<std::string>* fields) {
  fields->clear();
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      if (c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        field += '"';
        ++i;
      } else if (c == '"') {
        quoted = false;
      } else {
        field += c;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      fields->push_back(Trim(field));
      field.clear();
    } else {
      field += c;
    }
  }
  fields->push_back(Trim(field));
  return !quoted;
}

int FindColumn(const std::vector<std::string>& header, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (Lower(header[i]) == name) return static_cast<int>(i);
    }
  }
  return -1;
}

class TableReader {
 public:
  TableReader(const CsvTable& table, const ImportOptions& options, Measures* measures,
              std::vector<std::string>* notes)
      : table_(table), options_(options), measures_(measures), notes_(notes) {}

  Status Read() {
    size_t at = 0;
    std::vector<std::string> fields;
    bool header = false;
    while (at < table_.text.size()) {
      ++line_;
      const size_t end = std::min(table_.text.find('\n', at), table_.text.size());
      std::string_view line(table_.text.data() + at, end - at);
      at = end + 1;
      if (line_ == 1 && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
      if (Trim(std::string(line)).empty()) continue;
      if (!Split(line, &fields)) return Error("a quote is not closed");
      if (!header) {
        TAILCAST_RETURN_IF_ERROR(ReadHeader(fields));
        header = true;
        continue;
      }
      ++rows_;
      TAILCAST_RETURN_IF_ERROR(ReadRow(fields));
    }
    if (!header) return InvalidArgumentError(table_.name + ": is empty; it needs a header line");
    if (rows_ == 0) {
      return InvalidArgumentError(table_.name +
                                  ": has a header and no rows; give one row for each link");
    }
    if (merged_ > 0) {
      notes_->push_back(table_.name + ": " + std::to_string(merged_) +
                        (merged_ == 1 ? " value comes" : " values come") +
                        " twice; the worse one was kept");
    }
    return OkStatus();
  }

 private:
  Status Error(const std::string& message) const {
    return InvalidArgumentError(table_.name + ":" + std::to_string(line_) + ": " + message);
  }

  Status ReadHeader(const std::vector<std::string>& header) {
    header_ = header;
    from_ = FindColumn(header, {"from", "src", "source", "src_region", "src_cluster"});
    to_ = FindColumn(
        header, {"to", "dst", "dest", "destination", "dst_region", "dest_region", "dst_cluster"});
    if (header.size() == 1) {
      return Error("the header is one column, '" + header[0].substr(0, 80) +
                   "'; separate columns with commas");
    }
    for (size_t i = 0; i < header.size(); ++i) {
      for (size_t other = 0; other < i; ++other) {
        if (!header[i].empty() && Lower(header[i]) == Lower(header[other])) {
          return Error("column '" + header[i] + "' comes twice; remove one");
        }
      }
    }
    if (from_ < 0) return Error("no column for the origin; call it 'from' or 'src'");
    if (to_ < 0) return Error("no column for the destination; call it 'to' or 'dest'");
    price_ = FindColumn(header, {"usd_per_gb", "price_usd_per_gb", "cost", "price"});
    rtt_ = FindColumn(header, {"rtt_ms", "avg_rtt", "rtt", "latency_ms"});
    gbps_ = FindColumn(header, {"bandwidth_gbps"});
    bps_ = FindColumn(header, {"throughput_received_bps", "bandwidth_bps"});
    if (price_ < 0 && rtt_ < 0 && gbps_ < 0 && bps_ < 0) {
      return Error(
          "no column with a price, a round-trip time or a bandwidth; call one "
          "'usd_per_gb', 'rtt_ms' or 'bandwidth_gbps'");
    }
    from_tier_ = FindColumn(header, {"src_tier", "from_tier"});
    to_tier_ = FindColumn(header, {"dst_tier", "dest_tier", "to_tier"});
    std::string unused;
    for (int column = 0; column < static_cast<int>(header.size()); ++column) {
      const int used[] = {from_, to_, price_, rtt_, gbps_, bps_, from_tier_, to_tier_};
      if (std::find(std::begin(used), std::end(used), column) != std::end(used)) continue;
      unused += (unused.empty() ? "" : ", ") + ("'" + header[static_cast<size_t>(column)] + "'");
    }
    if (!unused.empty()) notes_->push_back(table_.name + ": columns not used: " + unused);
    return OkStatus();
  }

  // A field as a number; nothing if the column is missing or the field empty.
  Result<std::optional<double>> Number(const std::vector<std::string>& fields, int column) {
    if (column < 0) return std::optional<double>();
    const std::string& text = fields[static_cast<size_t>(column)];
    if (text.empty()) return std::optional<double>();
    const std::string& name = header_[static_cast<size_t>(column)];
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
      return Error("column '" + name + "': '" + text + "' is not a number");
    }
    if (value < 0) return Error("column '" + name + "': " + text + " is negative");
    return std::optional<double>(value);
  }

  Status ReadRow(const std::vector<std::string>& fields) {
    if (fields.size() != header_.size()) {
      return Error("has " + std::to_string(fields.size()) + " fields, the header has " +
                   std::to_string(header_.size()));
    }
    const auto field = [&](int column) { return fields[static_cast<size_t>(column)]; };
    if (!options_.tier.empty()) {
      if (from_tier_ >= 0 && field(from_tier_) != options_.tier) return OkStatus();
      if (to_tier_ >= 0 && field(to_tier_) != options_.tier) return OkStatus();
    }
    const std::string from = field(from_), to = field(to_);
    if (from.empty() || to.empty()) return Error("a cluster's name is empty");
    if (from == to) return OkStatus();
    TAILCAST_ASSIGN_OR_RETURN(const std::optional<double> price, Number(fields, price_));
    TAILCAST_ASSIGN_OR_RETURN(const std::optional<double> rtt, Number(fields, rtt_));
    TAILCAST_ASSIGN_OR_RETURN(std::optional<double> bandwidth, Number(fields, gbps_));
    TAILCAST_ASSIGN_OR_RETURN(const std::optional<double> bps, Number(fields, bps_));
    if (!bandwidth && bps) bandwidth = *bps / 1e9;
    if (price && *price > kUsdPerGbMax) {
      return Error("the price " + field(price_) + " is above 100 USD per GB; is it per TB?");
    }
    if (rtt && *rtt > kRttMsMax) {
      return Error("the round trip " + field(rtt_) +
                   " is above 1000000 ms; is it in microseconds?");
    }
    if (bandwidth && *bandwidth > kBandwidthGbpsMax) {
      return Error("the bandwidth is above 1000000000 Gbit/s; is it in bit/s?");
    }
    Measure& measure = measures_->Of(measures_->NumberOf(from), measures_->NumberOf(to));
    Merge(price, true, &measure.usd_per_gb);
    Merge(rtt, true, &measure.rtt_ms);
    Merge(bandwidth, false, &measure.bandwidth_gbps);
    return OkStatus();
  }

  void Merge(const std::optional<double>& value, bool larger_is_worse,
             std::optional<double>* slot) {
    if (!value) return;
    if (!*slot) {
      *slot = value;
      return;
    }
    ++merged_;
    *slot = larger_is_worse ? std::max(**slot, *value) : std::min(**slot, *value);
  }

  const CsvTable& table_;
  const ImportOptions& options_;
  Measures* measures_;
  std::vector<std::string>* notes_;
  int line_ = 0;
  int rows_ = 0;
  int merged_ = 0;
  std::vector<std::string> header_;
  int from_ = -1, to_ = -1, price_ = -1, rtt_ = -1, gbps_ = -1, bps_ = -1;
  int from_tier_ = -1, to_tier_ = -1;
};

}  // namespace

Result<Imported> ImportTables(const std::vector<CsvTable>& tables, const ImportOptions& options) {
  if (tables.empty()) return InvalidArgumentError("no tables to import");
  Imported out;
  Measures measures;
  for (const CsvTable& table : tables) {
    TAILCAST_RETURN_IF_ERROR(TableReader(table, options, &measures, &out.notes).Read());
  }
  if (const int shared = measures.ShareRoundTrips(); shared > 0) {
    out.notes.push_back(std::to_string(shared) +
                        (shared == 1
                             ? " pair has its round-trip time from the other direction"
                             : " pairs have their round-trip times from the other direction"));
  }
  bool any_price = false, any_rtt = false, any_bandwidth = false;
  std::set<std::string> names(measures.names().begin(), measures.names().end());
  const auto each_pair = [&](const auto& visit) {
    for (const std::string& from : names) {
      for (const std::string& to : names) {
        if (const Measure* measure = measures.Find(from, to)) visit(from, to, *measure);
      }
    }
  };
  each_pair([&](const std::string&, const std::string&, const Measure& measure) {
    any_price |= measure.usd_per_gb.has_value();
    any_rtt |= measure.rtt_ms.has_value();
    any_bandwidth |= measure.bandwidth_gbps.has_value();
  });
  if (!any_price) {
    return InvalidArgumentError("no table has prices; give one with a column 'usd_per_gb'");
  }
  if (!any_rtt) {
    out.notes.push_back(
        "no table has round-trip times: they count as 0; give a column 'rtt_ms' if delays matter");
  }
  if (!options.only.empty()) {
    const std::vector<std::string> known(names.begin(), names.end());
    std::set<std::string> wanted;
    for (const std::string& name : options.only) {
      if (!names.contains(name)) {
        return InvalidArgumentError("no table has a cluster '" + name + "'" +
                                    DidYouMean(name, known));
      }
      wanted.insert(name);
    }
    names = std::move(wanted);
  }
  const auto whole = [&](const std::string& from, const std::string& to) {
    const Measure* at = measures.Find(from, to);
    return at != nullptr && at->usd_per_gb && (!any_rtt || at->rtt_ms) &&
           (!any_bandwidth || at->bandwidth_gbps);
  };
  if (options.complete) {
    std::map<std::string, int> gaps;
    for (const std::string& a : names) {
      for (const std::string& b : names) {
        if (a != b && !whole(a, b)) {
          ++gaps[a];
          ++gaps[b];
        }
      }
    }
    std::vector<std::string> dropped;
    for (;;) {
      std::string worst;
      int most = 0;
      for (const std::string& name : names) {
        if (gaps[name] >= most && gaps[name] > 0) {
          most = gaps[name];
          worst = name;
        }
      }
      if (worst.empty()) break;
      names.erase(worst);
      dropped.push_back(worst);
      for (const std::string& other : names) {
        gaps[other] -= !whole(worst, other);
        gaps[other] -= !whole(other, worst);
      }
    }
    if (!dropped.empty()) {
      std::sort(dropped.begin(), dropped.end());
      std::string note =
          std::to_string(dropped.size()) +
          (dropped.size() == 1 ? " cluster lacks values to or from others and was dropped:"
                               : " clusters lack values to or from others and were dropped:");
      for (const std::string& name : dropped) note += " " + name;
      out.notes.push_back(note);
    }
  }
  int no_price = 0, no_rtt = 0;
  std::set<std::string> linked;
  each_pair([&](const std::string& from, const std::string& to, const Measure& measure) {
    if (!measure.usd_per_gb) {
      ++no_price;
    } else if (any_rtt && !measure.rtt_ms) {
      ++no_rtt;
    } else {
      out.links.push_back({.from = from,
                           .to = to,
                           .usd_per_gb = *measure.usd_per_gb,
                           .rtt_ms = measure.rtt_ms.value_or(0),
                           .bandwidth_gbps = measure.bandwidth_gbps.value_or(0)});
      linked.insert(from);
      linked.insert(to);
    }
  });
  const auto left_out = [&](int count, const char* what) {
    if (count > 0) {
      out.notes.push_back(std::to_string(count) +
                          (count == 1 ? " pair has no " : " pairs have no ") + what +
                          (count == 1 ? " and was left out" : " and were left out"));
    }
  };
  left_out(no_price, "price");
  left_out(no_rtt, "round-trip time");
  for (const std::string& name : names) {
    if (linked.contains(name)) {
      out.clusters.push_back({.name = name});
    } else {
      out.notes.push_back("cluster " + name + " has no link left and was left out");
    }
  }
  if (out.clusters.empty()) {
    return InvalidArgumentError(
        std::string("no link is left; do the tables name the clusters alike") +
        (options.only.empty() ? "" : ", is there a link between those to be kept") +
        ", and is the tier '" + options.tier + "' right?");
  }
  if (out.clusters.size() > kClustersMax) {
    return InvalidArgumentError(std::to_string(out.clusters.size()) + " clusters; at most " +
                                std::to_string(kClustersMax) +
                                " can be planned for: name those to keep");
  }
  return out;
}

}  // namespace tailcast::copytree
