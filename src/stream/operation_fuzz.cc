// The protobuf of an operation, as a scheduler or a reader sends it.
#include "tailcast/stream/operation.h"

#include <google/protobuf/stubs/logging.h>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/stream/index_record.h"

namespace tailcast::stream {
namespace {

void Try(const v1::Operation& message) {
  const Result<Operation> operation = FromProto(message);
  if (!operation.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(operation.status()), "bad input, and nothing else");
    return;
  }
  TAILCAST_CHECK(operation->chunk_size >= kChunkSizeMin && operation->chunk_size <= kChunkSizeMax);
  const ShardId& shard = operation->target.file.shard;
  TAILCAST_CHECK(shard.shard >= 0 && shard.shard < kShardsMax);
  TAILCAST_CHECK(shard.stream.incarnation != StreamIncarnation::kNone);
  TAILCAST_CHECK(operation->id.term != Term());
  TAILCAST_CHECK(operation->seal[0].has_value() == operation->seal[1].has_value());
  if (operation->sealed()) {
    TAILCAST_CHECK(*operation->seal[0] >= 0 && *operation->seal[1] >= 0 &&
                   *operation->seal[1] % kIndexRecordSize == 0);
  }
  v1::Operation again;
  ToProto(*operation, &again);
  const Result<Operation> second = FromProto(again);
  TAILCAST_CHECK(second.ok(), "what was taken is taken again");
  v1::Operation third;
  ToProto(*second, &third);
  TAILCAST_CHECK(third.SerializeAsString() == again.SerializeAsString(), "as the same operation");
  TAILCAST_CHECK(second->target == operation->target && second->id == operation->id);
}

}  // namespace
}  // namespace tailcast::stream

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const google::protobuf::LogSilencer quiet;
  tailcast::v1::Operation message;
  if (message.ParseFromArray(data, static_cast<int>(size))) tailcast::stream::Try(message);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  stream::Operation operation;
  operation.target.file = {{{"flights", stream::StreamIncarnation{171}}, 3},
                           {7, 1763722199123456, 12345678, 12345}};
  operation.target.cell = "europe-west";
  operation.id = {stream::Term{stream::TreeVersion{1}, stream::SchedulerIncarnation{7}, 2},
                  stream::Nonce{5}};
  operation.source_cell = "us-central";
  operation.chunk_size = 4096;
  operation.writer_name = "writer-1";
  operation.writer_address = "127.0.0.1:7000";
  operation.writer_via = "127.0.0.1:9000";
  std::vector<std::string> seeds;
  for (const bool sealed : {false, true}) {
    operation.target.layer = sealed ? stream::Layer::kCache : stream::Layer::kPrimary;
    if (sealed) operation.seal[0] = 640, operation.seal[1] = 64;
    v1::Operation message;
    ToProto(operation, &message);
    seeds.push_back(message.SerializeAsString());
  }
  return seeds;
}
