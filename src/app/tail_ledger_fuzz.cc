// The position file of `tailcast tail`, and what is made of it when its shards end somewhere.
#include "tailcast/app/tail_ledger.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::app {
namespace {

void Try(fuzz::Input& input) {
  const auto end = static_cast<int64_t>(input.Take<uint64_t>() >> 1);
  const Result<TailState> state = TailState::Parse(input.Rest());
  if (!state.ok()) {
    TAILCAST_CHECK(IsDataLoss(state.status()), "a damaged file, and nothing else");
    return;
  }
  const Result<TailState> again = TailState::Parse(state->ToText());
  TAILCAST_CHECK(
      again.ok() && again->incarnation == state->incarnation && again->shards == state->shards,
      "what is kept is what was read");
  for (const auto& [shard, runs] : state->shards) {
    const Result<TailLedger> ledger = TailLedger::Recover(runs, end);
    if (!ledger.ok()) {
      TAILCAST_CHECK(IsDataLoss(ledger.status()));
      continue;
    }
    TAILCAST_CHECK(ledger->end() == end);
    TAILCAST_CHECK(TailLedger::Recover(ledger->runs(), end).ok(), "it can be kept");
  }
}

}  // namespace
}  // namespace tailcast::app

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fuzz::Input input(data, size);
  tailcast::app::Try(input);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace app;
  TailState state;
  state.incarnation = stream::StreamIncarnation{0x9f3a00c2d1e4b576};
  const FilePlace a{{"/var/log/a b\n.log", 2049, 77}, 0, FileMark::Of(0, ""), 100};
  const FilePlace b{{"/var/log/b", 2049, 78}, 7300, FileMark::Of(7300, "the end\n"), 9000};
  state.shards[0] = {{0, a}, {7300, b}};
  state.shards[3] = {{17, b}};
  const std::string text = state.ToText();
  return {std::string(8, '\0') + text, std::string("\x40\x42\x0f\0\0\0\0\0", 8) + text};
}
