// The links of a topology as a table in CSV, for deployments with so many that nobody writes them
// by hand: `tailcast copytree import --table` makes it, the topology's key `tables` names it.
//
//   from,to,usd_per_gb,rtt_ms,bandwidth_gbps
//   us-central,europe-west,0.02,130,10
//
// The first line is this header; bandwidth_gbps may be missing. One line for each direction. Names
// hold no commas and no quotes, so nothing is quoted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/cell/topology.h"

namespace tailcast::cell {

// Appends the table's links. `clusters`: the topology's; its links so far are in `links`.
// InvalidArgument names file, line and what to do: another header, no rows, a row with more or
// fewer fields, a name that is no cluster's (with the nearest), a link given twice, a value that is
// no number, negative or out of range. NotFound, PermissionDenied: the file. `crc32c`, if given:
// CRC-32C of the file.
Status ReadLinkTable(const std::string& path, const std::vector<TopologyCluster>& clusters,
                     std::vector<TopologyLink>* links, uint32_t* crc32c = nullptr);

// The same from text; `name` stands for the file in messages.
Status ParseLinkTable(const std::string& text, const std::string& name,
                      const std::vector<TopologyCluster>& clusters,
                      std::vector<TopologyLink>* links);

// The table of the links. Health and proxies are not in it.
std::string LinkTableText(const std::vector<TopologyLink>& links);

}  // namespace tailcast::cell
