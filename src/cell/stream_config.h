// What a stream's configuration may be, and what its tree becomes when another one replaces it. A
// part of the catalogue (catalogue.h); stateless.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "tailcast/base/status.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::cell {

using StreamConfigs = google::protobuf::RepeatedPtrField<v1::StreamConfig>;

// Where the stream of that name is, or would be, among those, which are sorted by name.
StreamConfigs::const_iterator FindPlace(const StreamConfigs& streams, const std::string& name);
// Null: there is none.
const v1::StreamConfig* FindByName(const StreamConfigs& streams, const std::string& name);
// Replaces the one of that name, or puts it where it belongs.
void PutByName(const v1::StreamConfig& stream, StreamConfigs* streams);

// InvalidArgument names the field. `known_cells`: empty, or all that may be named.
Status CheckStreamConfig(const v1::StreamConfig& stream,
                         const std::vector<std::string>& known_cells);
// InvalidArgument unless the edges are a tree that begins at the stream's source and reaches all of
// its destinations; a cell is entered once.
Status ValidateTree(const v1::StreamConfig& stream);

// The same edges, in whatever order.
bool SameTree(const v1::StreamConfig& a, const v1::StreamConfig& b);
bool InTree(const v1::StreamConfig& stream, const std::string& cell);
// What the tree of `known` becomes when `next` replaces it: the steps begin at the tree that was
// carried out last.
v1::TreeChange ChangeFrom(const v1::StreamConfig& known, const v1::StreamConfig& next);
// Edges of changes that replaced one another, at most.
inline constexpr int kAbandonedMax = 10'000;

}  // namespace tailcast::cell
