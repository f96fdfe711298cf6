#include "tailcast/app/cache_warning.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "tailcast/app/status_gather.h"
#include "tailcast/cell/topology.h"
#include "tailcast/inspect/cache_room.h"
#include "tailcast/inspect/text.h"

namespace tailcast::app {
namespace {

bool Carries(const v1::StreamConfig& stream, const std::string& cell) {
  return cell.empty() || cell == stream.source() ||
         std::find(stream.destinations().begin(), stream.destinations().end(), cell) !=
             stream.destinations().end();
}

}  // namespace

void WarnOfSmallCaches(const std::vector<DeploymentCell>& cells, const v1::StreamConfig& stream,
                       double data_bytes_per_s) {
  if (data_bytes_per_s <= 0) return;
  for (const DeploymentCell& where : cells) {
    if (!Carries(stream, where.name)) continue;
    const nlohmann::json cell = CellLook(where, "").Look();
    inspect::CacheLoad load = inspect::LoadOf(cell);
    load.Add(stream.name(), data_bytes_per_s, 0,
             stream.chunk_size_by_rate() ? 0 : stream.chunk_size());
    const std::string trouble = inspect::CacheRoomTrouble(inspect::RoomOf(cell), load);
    if (trouble.empty()) continue;
    std::fprintf(stderr, "tailcast: warning: cell %s, with %s/s of stream %s: %s\n",
                 cell.value("name", where.name).c_str(),
                 inspect::BytesText(std::llround(data_bytes_per_s)).c_str(), stream.name().c_str(),
                 trouble.c_str());
  }
}

double ExpectedRate(const v1::CellView& view, const std::string& stream) {
  const auto topology = cell::ParseTopology(view.topology(), "topology", cell::Tables::kSkip);
  if (!topology.ok()) return 0;
  const cell::TopologyStream* known = topology->FindStream(stream);
  return known == nullptr ? 0 : known->rate_mbps * 1e6 / 8;
}

}  // namespace tailcast::app
