#include "tailcast/inspect/key_name.h"

#include <charconv>
#include <optional>
#include <vector>

#include "tailcast/inspect/text.h"
#include "tailcast/stream/chunk_key.h"

namespace tailcast::inspect {
namespace {

constexpr int64_t kSeqMax = 9'999'999'999;             // 10 digits (stream/names.h)
constexpr int64_t kChunkMax = (int64_t{1} << 47) - 1;  // of 2^56 bytes, in chunks of 512

std::optional<int64_t> Number(std::string_view text, int64_t min, int64_t max) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size() ||
      number < min || number > max) {
    return std::nullopt;
  }
  return number;
}

std::optional<cache::Key> HexKey(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  cache::Key key;
  const auto half = [&](size_t at, uint64_t& out) {
    const char* const begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + 16, out, 16);
    return error == std::errc() && end == begin + 16;
  };
  if (!half(0, key.hi) || !half(16, key.lo)) return std::nullopt;
  return key;
}

}  // namespace

std::string_view InstanceName(Instance instance) {
  return instance == Instance::kData ? "data" : "metadata";
}

std::string KeyName::ToString() const {
  std::string text = stream + "/" + std::to_string(shard) + "/" + std::to_string(seq);
  switch (kind) {
    case Kind::kMetadata:
      break;
    case Kind::kLock:
      text += "/lock:" + std::string(LayerName(layer));
      break;
    case Kind::kChunk:
      text += (part == stream::Part::kIndex ? "/index:" : "/") + std::to_string(chunk);
      break;
  }
  return text;
}

std::string KeyText(const cache::Key& key) { return Hex(key.hi, 16) + Hex(key.lo, 16); }

Result<std::variant<cache::Key, KeyName>> ParseKey(const std::string& text) {
  const auto wrong = [&text](const std::string& why) {
    return InvalidArgumentError("KEY '" + text + "': " + why);
  };
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const size_t slash = rest.find('/');
    parts.push_back(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (parts.size() == 1) {
    if (const auto key = HexKey(text)) return std::variant<cache::Key, KeyName>(*key);
  }
  if (parts.size() < 3 || parts.size() > 4) {
    return wrong(
        "neither 32 hex digits nor STREAM/SHARD/SEQ or STREAM/SHARD/SEQ/CHUNK, as flights/0/1/12");
  }
  KeyName name;
  name.stream = parts[0];
  if (Status valid = stream::ValidateStreamName(name.stream); !valid.ok()) {
    return wrong(valid.message());
  }
  const auto shard = Number(parts[1], 0, stream::kShardsMax - 1);
  if (!shard.has_value()) {
    return wrong("shard '" + std::string(parts[1]) + "' is no number from 0 to " +
                 std::to_string(stream::kShardsMax - 1));
  }
  name.shard = static_cast<int32_t>(*shard);
  const auto seq = Number(parts[2], 1, kSeqMax);
  if (!seq.has_value()) {
    return wrong("file '" + std::string(parts[2]) +
                 "' is no sequence number; a shard's files are 1, 2, 3, ...");
  }
  name.seq = *seq;
  if (parts.size() == 3) return std::variant<cache::Key, KeyName>(std::move(name));
  std::string_view last = parts[3];
  if (last == "lock:primary" || last == "lock:cache") {
    name.kind = KeyName::Kind::kLock;
    name.layer = last == "lock:cache" ? stream::Layer::kCache : stream::Layer::kPrimary;
    return std::variant<cache::Key, KeyName>(std::move(name));
  }
  name.kind = KeyName::Kind::kChunk;
  if (last.starts_with("index:")) {
    name.part = stream::Part::kIndex;
    last.remove_prefix(6);
  } else if (last.starts_with("data:")) {
    last.remove_prefix(5);
  }
  const auto chunk = Number(last, 0, kChunkMax);
  if (!chunk.has_value()) {
    return wrong("'" + std::string(parts[3]) +
                 "' is no chunk: 0, 1, 2, ... of the data, index:0, index:1, ... of the index, "
                 "lock:primary or lock:cache");
  }
  name.chunk = *chunk;
  return std::variant<cache::Key, KeyName>(std::move(name));
}

Status CheckShard(const KeyName& name, const v1::StreamConfig& stream) {
  if (name.shard < stream.shards()) return OkStatus();
  return InvalidArgumentError("KEY '" + name.ToString() + "': stream '" + stream.name() + "' has " +
                              Counted(static_cast<uint64_t>(stream.shards()), "shard") +
                              ", numbered from 0");
}

cache::Key KeyOf(const KeyName& name, const stream::StreamId& stream, int64_t chunk_size) {
  const stream::KeyMaker keys({stream, name.shard});
  switch (name.kind) {
    case KeyName::Kind::kMetadata:
      break;
    case KeyName::Kind::kLock:
      return keys.Lock(name.seq, static_cast<int>(name.layer));
    case KeyName::Kind::kChunk:
      return keys.Chunk(name.seq, name.part, chunk_size, name.chunk);
  }
  return keys.MetadataGroup(name.seq);
}

}  // namespace tailcast::inspect
