// Ids of streams and shards as messages between processes carry them (proto/).
#pragma once

#include "tailcast/base/strong.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::stream {

inline StreamId IdOf(const v1::StreamConfig& config) {
  return {config.name(), StreamIncarnation{config.incarnation()}};
}

inline TreeVersion TreeVersionOf(const v1::StreamConfig& config) {
  return TreeVersion{config.tree_version()};
}

// Of messages with the fields stream, incarnation and shard. Not validated.
template <typename Message>
ShardId ShardOf(const Message& message) {
  return {{message.stream(), StreamIncarnation{message.incarnation()}}, message.shard()};
}
template <typename Message>
void SetShard(const ShardId& shard, Message* out) {
  out->set_stream(shard.stream.name);
  out->set_incarnation(Raw(shard.stream.incarnation));
  out->set_shard(shard.shard);
}

}  // namespace tailcast::stream
