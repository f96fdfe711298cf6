// A bulk of mutations from a client's channel, and its answer from a server.
#include "tailcast/cache/mutate_message.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::cache {
namespace {

void TryMessage(std::string_view bytes) {
  Result<MutateReader> reader = MutateReader::Parse(bytes);
  if (!reader.ok()) {
    TAILCAST_CHECK(IsInvalidArgument(reader.status()), "bad input, and nothing else");
    return;
  }
  MutateMessage again;
  again.set_context(reader->context());
  MutateMessage::Entry entry;
  size_t count = 0;
  while (reader->Next(entry)) {
    ++count;
    TAILCAST_CHECK(entry.rule <= MergeRule::kMaxBytes, "no such rule");
    TAILCAST_CHECK(entry.value.empty() ||
                       (entry.value.data() >= bytes.data() &&
                        entry.value.data() + entry.value.size() <= bytes.data() + bytes.size()),
                   "a value outside of the message");
    again.Add(entry.key, entry.rule, entry.erase, entry.value);
  }
  TAILCAST_CHECK(count == reader->size(), "each mutation once");
  std::string built;
  for (const std::string_view part : again.Parts()) built.append(part);
  // An erasure carries no value; whoever sends one has it left out.
  TAILCAST_CHECK(built.size() <= bytes.size() && again.bytes() == built.size());
  if (built.size() == bytes.size()) TAILCAST_CHECK(built == bytes, "built again as it was");
}

void TryAnswer(std::string_view bytes) {
  const std::optional<MutateAnswer> answer = ParseAnswer(bytes);
  if (!answer.has_value()) return;
  std::string again;
  AppendAnswer(*answer, again);
  const std::optional<MutateAnswer> twice = ParseAnswer(again);
  TAILCAST_CHECK(twice.has_value() && twice->status == answer->status &&
                     twice->configuration == answer->configuration &&
                     twice->results == answer->results,
                 "built again as it was");
}

}  // namespace
}  // namespace tailcast::cache

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tailcast::cache::TryMessage(bytes);
  tailcast::cache::TryAnswer(bytes);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::cache;
  std::vector<std::string> seeds;
  for (const uint32_t length : {0u, 10u, 300u}) {
    const std::string value(length, 'v');
    MutateMessage message;
    message.set_context({ConfigurationId{8}, CacheEpoch{2}, ProcessIncarnation{77}});
    message.Add({1, 2}, MergeRule::kLongerWins, false, value);
    message.Add({3, 4}, MergeRule::kMaxLanes, false, "12345678");
    message.Add({5, 6}, MergeRule::kMaxBytes, true, "");
    std::string bytes;
    for (const std::string_view part : message.Parts()) bytes.append(part);
    seeds.push_back(bytes);
    std::string answer;
    AppendAnswer({MutateStatus::kDone, ConfigurationId{8}, std::string_view("\0\1\2", 3)}, answer);
    seeds.push_back(answer);
  }
  return seeds;
}
