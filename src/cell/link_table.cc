#include "tailcast/cell/link_table.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tailcast/base/crc32c.h"
#include "tailcast/base/nearest.h"

namespace tailcast::cell {
namespace {

constexpr char kHeader[] = "from,to,usd_per_gb,rtt_ms";
constexpr char kBandwidth[] = ",bandwidth_gbps";
constexpr double kUsdPerGbMax = 100, kRttMsMax = 1e6, kBandwidthGbpsMax = 1e9;

class Reader {
 public:
  Reader(const std::string& path, const std::vector<TopologyCluster>& clusters,
         std::vector<TopologyLink>* links)
      : path_(path), clusters_(clusters), links_(links) {
    for (size_t i = 0; i < clusters.size(); ++i) number_of_[clusters[i].name] = i;
    given_.assign(clusters.size() * clusters.size(), false);
    for (const TopologyLink& link : *links) {
      given_[number_of_.at(link.from) * clusters.size() + number_of_.at(link.to)] = true;
    }
  }

  Status Read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      std::string_view row = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), row.size() + 1));
      if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
      if (line_ == 1) {
        TAILCAST_RETURN_IF_ERROR(ReadHeader(row));
      } else if (!row.empty()) {
        TAILCAST_RETURN_IF_ERROR(ReadRow(row));
        ++rows_;
      }
    }
    if (line_ == 0) {
      line_ = 1;  // where it would be
      return Error(std::string("is empty; its first line must be ") + kHeader);
    }
    if (rows_ == 0) return Error("has a header and no rows; give one row for each link");
    return OkStatus();
  }

 private:
  Status Error(const std::string& message) const {
    return InvalidArgumentError(path_ + ":" + std::to_string(line_) + ": " + message);
  }

  Status ReadHeader(std::string_view row) {
    fields_ = 4;
    if (row == std::string(kHeader) + kBandwidth) {
      fields_ = 5;
    } else if (row != kHeader) {
      return Error(std::string("the first line must be ") + kHeader + " or " + kHeader +
                   kBandwidth +
                   "; tables with other columns are read by `tailcast copytree import`");
    }
    return OkStatus();
  }

  Result<size_t> Cluster(std::string_view name) const {
    const auto found = number_of_.find(name);
    if (found != number_of_.end()) return found->second;
    std::vector<std::string> known;
    for (const TopologyCluster& cluster : clusters_) known.push_back(cluster.name);
    return Error("no cluster is called '" + std::string(name) + "'" +
                 DidYouMean(std::string(name), known));
  }

  Result<double> Number(std::string_view text, const char* column, double highest) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
      return Error(std::string("column '") + column + "': '" + std::string(text) +
                   "' is not a number");
    }
    if (value < 0 || value > highest) {
      char range[48];
      std::snprintf(range, sizeof range, "; it must be 0 to %g", highest);
      return Error(std::string("column '") + column + "' is " + std::string(text) + range);
    }
    return value;
  }

  Status ReadRow(std::string_view row) {
    std::string_view field[5];
    size_t count = 0;
    for (;; ++count) {
      const size_t comma = row.find(',');
      if (count < 5) field[count] = row.substr(0, comma);
      if (comma == std::string_view::npos) break;
      row.remove_prefix(comma + 1);
    }
    if (++count != fields_) {
      return Error("has " + std::to_string(count) + " fields, the header has " +
                   std::to_string(fields_));
    }
    TAILCAST_ASSIGN_OR_RETURN(const size_t from, Cluster(field[0]));
    TAILCAST_ASSIGN_OR_RETURN(const size_t to, Cluster(field[1]));
    if (from == to) return Error("a link from a cluster to itself; remove it");
    if (given_[from * clusters_.size() + to]) {
      return Error("link " + clusters_[from].name + " -> " + clusters_[to].name +
                   " is given twice; remove one");
    }
    given_[from * clusters_.size() + to] = true;
    TopologyLink link{.from = clusters_[from].name, .to = clusters_[to].name};
    TAILCAST_ASSIGN_OR_RETURN(link.usd_per_gb, Number(field[2], "usd_per_gb", kUsdPerGbMax));
    TAILCAST_ASSIGN_OR_RETURN(link.rtt_ms, Number(field[3], "rtt_ms", kRttMsMax));
    if (fields_ == 5) {
      TAILCAST_ASSIGN_OR_RETURN(link.bandwidth_gbps,
                                Number(field[4], "bandwidth_gbps", kBandwidthGbpsMax));
    }
    links_->push_back(std::move(link));
    return OkStatus();
  }

  const std::string& path_;
  const std::vector<TopologyCluster>& clusters_;
  std::vector<TopologyLink>* links_;
  std::unordered_map<std::string_view, size_t> number_of_;  // looked up only, never walked
  std::vector<bool> given_;                                 // [from * clusters + to]
  int line_ = 0;
  int rows_ = 0;
  size_t fields_ = 4;
};

void AppendNumber(double value, std::string* out) {
  char text[40];
  out->append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace

Status ReadLinkTable(const std::string& path, const std::vector<TopologyCluster>& clusters,
                     std::vector<TopologyLink>* links, uint32_t* crc32c) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno != 0 ? errno : EIO, "can't read " + path);
  std::stringstream text;
  text << file.rdbuf();
  if (file.bad()) return ErrnoStatus(EIO, "can't read " + path);
  const std::string bytes = std::move(text).str();
  if (crc32c != nullptr) *crc32c = Crc32c(bytes);
  return ParseLinkTable(bytes, path, clusters, links);
}

Status ParseLinkTable(const std::string& text, const std::string& name,
                      const std::vector<TopologyCluster>& clusters,
                      std::vector<TopologyLink>* links) {
  return Reader(name, clusters, links).Read(text);
}

std::string LinkTableText(const std::vector<TopologyLink>& links) {
  std::string out = std::string(kHeader) + kBandwidth + "\n";
  for (const TopologyLink& link : links) {
    out += link.from + "," + link.to;
    for (const double value : {link.usd_per_gb, link.rtt_ms, link.bandwidth_gbps}) {
      out += ",";
      AppendNumber(value, &out);
    }
    out += "\n";
  }
  return out;
}

}  // namespace tailcast::cell
