#include "tailcast/stream/operation.h"

#include "tailcast/base/hash.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::stream {
namespace {
constexpr int64_t kStuckMaxMs = int64_t{24} * 3600 * 1000;
}  // namespace

std::string_view LayerName(Layer layer) { return layer == Layer::kPrimary ? "primary" : "cache"; }

std::string OperationTarget::ToString() const {
  return file.shard.ToString() + "#" + std::to_string(file.stem.seq) + " " +
         std::string(LayerName(layer)) + " -> " + cell;
}

uint64_t LockOwner(std::string_view writer_name, Nonce nonce) {
  return Hash128(writer_name).lo << 32 | Raw(nonce);
}

Status ValidateCellName(std::string_view name, std::string_view what) {
  bool good = !name.empty() && name.size() <= 63;
  for (char c : name) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-');
  }
  if (good) return OkStatus();
  return InvalidArgumentError(std::string(what) + " '" + std::string(name.substr(0, 80)) +
                              "': a cell's name is 1 to 63 of a-z 0-9 -");
}

void ToProto(const Operation& o, v1::Operation* out) {
  SetShard(o.target.file.shard, out);
  out->set_stem(o.target.file.stem.ToString());
  out->set_layer(static_cast<v1::Layer>(o.target.layer));
  out->set_source_cell(o.source_cell);
  out->set_target_cell(o.target.cell);
  SetOperationId(o.id, out);
  out->set_chunk_size(o.chunk_size);
  out->set_writer_name(o.writer_name);
  out->set_writer_address(o.writer_address);
  out->set_writer_via(o.writer_via);
  out->set_fresh(o.fresh);
  out->set_sealed(o.sealed());
  if (o.sealed()) {
    out->set_sealed_data_length(*o.seal[0]);
    out->set_sealed_index_length(*o.seal[1]);
  }
  const auto milliseconds = [](Duration d) { return d < Duration::Infinite() ? d.millis() : 0; };
  out->set_stuck_after_ms(milliseconds(o.stuck_after));
  out->set_stuck_at_first_ms(milliseconds(o.stuck_at_first));
}

Result<Operation> FromProto(const v1::Operation& in) {
  const auto bad = [](const std::string& field, const std::string& value) {
    return InvalidArgumentError("operation." + field + " is '" + value.substr(0, 100) + "'");
  };
  Operation o;
  TAILCAST_RETURN_IF_ERROR(ValidateStreamName(in.stream()));
  o.target.file.shard = ShardOf(in);
  if (in.incarnation() == 0) return bad("incarnation", "0");
  if (in.shard() < 0 || in.shard() >= kShardsMax) return bad("shard", std::to_string(in.shard()));
  const auto stem = Stem::Parse(in.stem());
  if (!stem) return bad("stem", in.stem());
  o.target.file.stem = *stem;
  if (in.layer() != v1::LAYER_PRIMARY && in.layer() != v1::LAYER_CACHE) {
    return bad("layer", std::to_string(in.layer()));
  }
  o.target.layer = static_cast<Layer>(in.layer());
  TAILCAST_RETURN_IF_ERROR(ValidateCellName(in.source_cell(), "operation.source_cell"));
  TAILCAST_RETURN_IF_ERROR(ValidateCellName(in.target_cell(), "operation.target_cell"));
  o.source_cell = in.source_cell();
  o.target.cell = in.target_cell();
  if (in.term() == 0) return bad("term", "0");
  o.id = OperationIdOf(in);
  if (in.chunk_size() < kChunkSizeMin || in.chunk_size() > kChunkSizeMax) {
    return bad("chunk_size", std::to_string(in.chunk_size()));
  }
  o.chunk_size = in.chunk_size();
  o.writer_name = in.writer_name();
  o.writer_address = in.writer_address();
  o.writer_via = in.writer_via();
  o.fresh = in.fresh();
  if (in.sealed()) {
    if (in.sealed_data_length() < 0) {
      return bad("sealed_data_length", std::to_string(in.sealed_data_length()));
    }
    if (in.sealed_index_length() < 0 || in.sealed_index_length() % kIndexRecordSize != 0) {
      return bad("sealed_index_length", std::to_string(in.sealed_index_length()));
    }
    o.seal[0] = in.sealed_data_length();
    o.seal[1] = in.sealed_index_length();
  }
  const auto stuck = [&](const char* field, int64_t ms, Duration* out) -> Status {
    if (ms < 0 || ms > kStuckMaxMs) return bad(field, std::to_string(ms));
    if (ms > 0) *out = Duration::Millis(ms);
    return OkStatus();
  };
  TAILCAST_RETURN_IF_ERROR(stuck("stuck_after_ms", in.stuck_after_ms(), &o.stuck_after));
  TAILCAST_RETURN_IF_ERROR(stuck("stuck_at_first_ms", in.stuck_at_first_ms(), &o.stuck_at_first));
  return o;
}

}  // namespace tailcast::stream
