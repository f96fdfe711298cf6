#include "tailcast/world/bounds.h"

#include <algorithm>
#include <cstdint>

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
  if (samples_.back().kept > 0) return "bounded: messages are still under way";
  // What just ended may leave less; nothing may leave more. Something that comes again now and then
  // may be there at one look: so the most of the first looks is held against the least of the last
  // ones, and what lies between is the time in which a leak shows.
  const auto grown = [&](size_t Load::*of, size_t slack, const char* what) -> std::string {
    size_t early = 0, late = SIZE_MAX;
    for (size_t i = 0; i < kCompared; ++i) {
      early = std::max(early, samples_[i].*of);
      late = std::min(late, samples_[samples_.size() - 1 - i].*of);
    }
    if (late <= early + slack) return "";
    return "bounded: from " + std::to_string(early) + " to " + std::to_string(late) + " " + what +
           ", though nothing is to be done";
  };
  if (std::string events = grown(&Load::waiting, 4, "events wait"); !events.empty()) return events;
  return grown(&Load::connections, 1, "connections");
}

}  // namespace tailcast::world
