// What operations cost on the machine at hand: CPU time that ./dev bench cache has measured.
#pragma once

#include <string>

#include "tailcast/base/status.h"

namespace tailcast::scale {

// CPU seconds, of tcp; shared memory and RDMA cost a server nothing for a read.
struct Costs {
  double server_read_s = 0;   // of a cache server, for one chunk
  double client_read_s = 0;   // of a consumer, for one chunk
  double server_write_s = 0;  // of all three servers, for one chunk
  double server_value_s = 0;  // of the servers, for a read of lengths
  double client_value_s = 0;  // of a consumer, for one of those
  std::string machine;        // its CPU, as the bench saw it
};

// The rows that are needed, as benchmark_filter of the bench.
std::string CostRows();
// Of the bench's JSON. InvalidArgument: it is none, or has not all of those rows.
Result<Costs> ReadCosts(const std::string& json, const std::string& name);

}  // namespace tailcast::scale
