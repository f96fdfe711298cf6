#include "tailcast/world/bounds.h"

#include <algorithm>

namespace tailcast::world {
namespace {

std::string CheckServer(const Process& process, const cache::Server& server) {
  const cache::ServerStats stats = server.core()->stats();
  if (stats.mismatches > 0 || server.counters().repair_mismatches > 0) {
    return "longer wins: values that contradict each other at " + process.full_name();
  }
  if (server.counters().get_calls > 0 && stats.overflows == 0) {
    return "no server on the read path: " + process.full_name() + " was asked " +
           std::to_string(server.counters().get_calls) + " times, and no bucket of it is full";
  }
  return "";
}

}  // namespace

std::string CheckBounds(Deployment& deployment) {
  if (const size_t queued = deployment.network().load().queued_bytes_max;
      queued > kQueuedBytesMax) {
    return "bounded: " + std::to_string(queued) + " bytes were queued on a stream";
  }
  for (const std::string& cell : deployment.cell_names()) {
    for (const CacheLayer layer : {CacheLayer::kData, CacheLayer::kMetadata}) {
      for (const auto& [process, server] : deployment.CacheServers(cell, layer)) {
        if (std::string problem = CheckServer(*process, *server); !problem.empty()) return problem;
      }
    }
  }
  return "";
}

void QuietWatch::Sample() {
  const sim::Network::Load load = deployment_.network().load();
  samples_.push_back({deployment_.time().waiting(), load.connections, load.kept_messages});
}

std::string QuietWatch::Grown() const {
  const Load& first = samples_.front();
  const Load& last = samples_.back();
  if (last.kept > 0) return "bounded: messages are still under way";
  const auto grows = [&](size_t Load::*of, size_t slack) {
    const bool always =
        std::is_sorted(samples_.begin(), samples_.end(),
                       [of](const Load& a, const Load& b) { return a.*of < b.*of; });
    return always && last.*of > first.*of * 5 / 4 + slack;
  };
  if (grows(&Load::waiting, 50)) {
    return "bounded: from " + std::to_string(first.waiting) + " to " +
           std::to_string(last.waiting) + " events wait, though nothing is to be done";
  }
  if (grows(&Load::connections, 10)) {
    return "bounded: from " + std::to_string(first.connections) + " to " +
           std::to_string(last.connections) + " connections, though nothing is to be done";
  }
  return "";
}

}  // namespace tailcast::world
