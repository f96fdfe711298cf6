#include "tailcast/cell/stream_config.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tailcast/base/nearest.h"
#include "tailcast/cell/floors.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/operation.h"

namespace tailcast::cell {
namespace {

constexpr int kDestinationsMax = 1000;
static_assert(kAbandonedMax == 10 * kDestinationsMax);

}  // namespace

StreamConfigs::const_iterator FindPlace(const StreamConfigs& streams, const std::string& name) {
  return std::lower_bound(
      streams.begin(), streams.end(), name,
      [](const v1::StreamConfig& stream, const std::string& n) { return stream.name() < n; });
}

const v1::StreamConfig* FindByName(const StreamConfigs& streams, const std::string& name) {
  const auto place = FindPlace(streams, name);
  return place == streams.end() || place->name() != name ? nullptr : &*place;
}

void PutByName(const v1::StreamConfig& stream, StreamConfigs* streams) {
  const auto place = static_cast<int>(FindPlace(*streams, stream.name()) - streams->begin());
  if (place < streams->size() && streams->at(place).name() == stream.name()) {
    *streams->Mutable(place) = stream;
    return;
  }
  *streams->Add() = stream;
  std::rotate(streams->pointer_begin() + place, streams->pointer_end() - 1, streams->pointer_end());
}

Status CheckStreamConfig(const v1::StreamConfig& s, const std::vector<std::string>& known_cells) {
  TAILCAST_RETURN_IF_ERROR(stream::ValidateStreamName(s.name()));
  if (s.shards() < 1 || s.shards() > stream::kShardsMax) {
    return InvalidArgumentError("stream.shards is " + std::to_string(s.shards()) + "; 1 to " +
                                std::to_string(stream::kShardsMax) + " are allowed");
  }
  if (s.chunk_size() < stream::kChunkSizeMin || s.chunk_size() > stream::kChunkSizeMax) {
    return InvalidArgumentError("stream.chunk_size is " + std::to_string(s.chunk_size()) + "; " +
                                std::to_string(stream::kChunkSizeMin) + " to " +
                                std::to_string(stream::kChunkSizeMax) + " bytes are allowed");
  }
  if (s.chunk_size_by_rate() && !stream::IsStemChunkSize(s.chunk_size())) {
    return InvalidArgumentError("stream.chunk_size is " + std::to_string(s.chunk_size()) +
                                "; where the rate decides it is a power of two");
  }
  TAILCAST_RETURN_IF_ERROR(CheckRetention(s.retention()));
  if (s.destinations_size() > kDestinationsMax || s.tree_size() > kDestinationsMax) {
    return InvalidArgumentError("stream has more than " + std::to_string(kDestinationsMax) +
                                " destinations");
  }
  if (s.change().base_size() > kDestinationsMax || s.change().abandoned_size() > kAbandonedMax) {
    return InvalidArgumentError("stream.change has more than " + std::to_string(kDestinationsMax) +
                                " edges, or " + std::to_string(kAbandonedMax) + " abandoned ones");
  }
  for (const auto* edges : {&s.change().base(), &s.change().abandoned()}) {
    for (const v1::TreeEdge& edge : *edges) {
      TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.from(), "stream.change.from"));
      TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.to(), "stream.change.to"));
    }
  }
  const auto known = [&](const std::string& cell, const char* field) -> Status {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(cell, field));
    if (known_cells.empty() ||
        std::find(known_cells.begin(), known_cells.end(), cell) != known_cells.end()) {
      return OkStatus();
    }
    return InvalidArgumentError(std::string(field) + " '" + cell + "' is no cell of the topology" +
                                DidYouMean(cell, known_cells));
  };
  TAILCAST_RETURN_IF_ERROR(known(s.source(), "stream.source"));
  std::set<std::string> seen{s.source()};
  for (const std::string& destination : s.destinations()) {
    TAILCAST_RETURN_IF_ERROR(known(destination, "stream.destinations"));
    if (destination == s.source()) {
      return InvalidArgumentError("stream.destinations names '" + destination +
                                  "', which is the source: give the other cells");
    }
    if (!seen.insert(destination).second) {
      return InvalidArgumentError("stream.destinations names '" + destination + "' twice");
    }
  }
  if (stream::TreeVersionOf(s) > stream::kTreeVersionMax) {
    return InvalidArgumentError("stream.tree_version is " + std::to_string(s.tree_version()));
  }
  return ValidateTree(s);
}

Status ValidateTree(const v1::StreamConfig& stream) {
  std::map<std::string, std::string> parent;
  for (const v1::TreeEdge& edge : stream.tree()) {
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.from(), "stream.tree.from"));
    TAILCAST_RETURN_IF_ERROR(stream::ValidateCellName(edge.to(), "stream.tree.to"));
    if (edge.to() == stream.source()) {
      return InvalidArgumentError("stream.tree enters the source '" + edge.to() + "'");
    }
    if (!parent.emplace(edge.to(), edge.from()).second) {
      return InvalidArgumentError("stream.tree enters '" + edge.to() + "' twice");
    }
  }
  const auto reaches_source = [&](std::string cell) {
    for (size_t hops = 0; hops <= parent.size(); ++hops) {
      if (cell == stream.source()) return true;
      const auto it = parent.find(cell);
      if (it == parent.end()) return false;
      cell = it->second;
    }
    return false;
  };
  for (const auto& [to, from] : parent) {
    if (!reaches_source(to)) {
      return InvalidArgumentError("stream.tree: '" + to + "' is not reached from the source '" +
                                  stream.source() + "'");
    }
  }
  for (const std::string& destination : stream.destinations()) {
    if (!parent.contains(destination)) {
      return InvalidArgumentError("stream.tree does not reach the destination '" + destination +
                                  "'");
    }
  }
  return OkStatus();
}

bool SameTree(const v1::StreamConfig& a, const v1::StreamConfig& b) {
  const auto edges = [](const v1::StreamConfig& stream) {
    std::set<std::pair<std::string, std::string>> set;
    for (const v1::TreeEdge& edge : stream.tree()) set.emplace(edge.from(), edge.to());
    return set;
  };
  return edges(a) == edges(b);
}

bool InTree(const v1::StreamConfig& stream, const std::string& cell) {
  return std::any_of(stream.tree().begin(), stream.tree().end(),
                     [&](const v1::TreeEdge& edge) { return edge.to() == cell; });
}

v1::TreeChange ChangeFrom(const v1::StreamConfig& known, const v1::StreamConfig& next) {
  v1::TreeChange change;
  if (!known.has_change()) {
    *change.mutable_base() = known.tree();
    return change;
  }
  *change.mutable_base() = known.change().base();
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto* edges : {&known.change().base(), &next.tree()}) {
    for (const v1::TreeEdge& edge : *edges) seen.emplace(edge.from(), edge.to());
  }
  for (const auto* edges : {&known.change().abandoned(), &known.tree()}) {
    for (const v1::TreeEdge& edge : *edges) {
      if (seen.emplace(edge.from(), edge.to()).second) *change.add_abandoned() = edge;
    }
  }
  return change;
}

}  // namespace tailcast::cell
