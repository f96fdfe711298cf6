// KEY as people type it, and values of the metadata cache as other processes write them.
#include <string>
#include <variant>

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/inspect/contents.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/stream/lock.h"

namespace tailcast::inspect {
namespace {

void TryKey(const std::string& text) {
  const auto parsed = ParseKey(text);
  if (!parsed.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(parsed.status()), "bad input, and nothing else");
    return;
  }
  const auto* const name = std::get_if<KeyName>(&*parsed);
  const std::string again =
      name != nullptr ? name->ToString() : KeyText(std::get<cache::Key>(*parsed));
  const auto same = ParseKey(again);
  TAILCAST_CHECK(same.ok() && *same == *parsed, "what is written is read as the same");
}

void TryValue(fuzz::Input& input) {
  KeyName name{.stream = "s"};
  name.seq = 1 + static_cast<int64_t>(input.Below(100));
  name.kind = static_cast<KeyName::Kind>(input.Below(3));
  const WallTime now = WallTime::FromMicros(input.Take<uint32_t>());
  const std::string_view value = input.Rest();
  for (const auto& [seq, file] : FilesOf(name.seq, value)) {
    TAILCAST_CHECK(
        file.known() && stream::MetadataGroupOf(seq) == stream::MetadataGroupOf(name.seq),
        "a file of another group");
  }
  for (const std::string& line : Describe(name, value, now)) {
    TAILCAST_CHECK(!line.empty() && line.find('\n') == std::string::npos, "one line each");
  }
}

}  // namespace
}  // namespace tailcast::inspect

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fuzz::Input input(data, size);
  if (input.Below(2) == 0) {
    tailcast::inspect::TryKey(std::string(input.Rest()));
  } else {
    tailcast::inspect::TryValue(input);
  }
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  std::vector<std::string> seeds;
  for (const char* key : {"flights/0/1", "s/0/1/12", "s/0/1/index:3", "s/0/1/lock:cache",
                          "0123456789abcdef0123456789abcdef"}) {
    std::string seed;
    Append<uint32_t>(seed, 0);
    seeds.push_back(seed + key);
  }
  stream::PairMetadata file;
  file.created_us = 1'700'000'000'000'000;
  file.chunk_size = 4096;
  file.seal[0] = 100;
  const std::string values[] = {stream::EncodePairMetadata(9, file),
                                stream::EncodeLock({stream::Term{}, 5, stream::LockState::kHeld})};
  for (uint32_t kind = 0; kind < 2; ++kind) {
    std::string seed;
    Append<uint32_t>(seed, 1);
    Append<uint32_t>(seed, 8);
    Append<uint32_t>(seed, kind);
    Append<uint32_t>(seed, 0);
    seeds.push_back(seed + values[kind]);
  }
  return seeds;
}
