// A byte stream that is cut into messages, as it arrives in pieces.
#include "tailcast/stream/framing.h"

#include "tailcast/base/check.h"
#include "tailcast/fuzz/target.h"

namespace tailcast::stream {
namespace {

constexpr int64_t kMessageBytesMax = 300;

struct Cut {
  std::vector<std::string> messages;
  Status status;
};

// `piece`: bytes of each Push.
Cut CutUp(Framing framing, std::string_view bytes, size_t piece) {
  FrameSplitter splitter(framing, kMessageBytesMax);
  Cut cut;
  const auto take = [&] {
    while (const auto message = splitter.Next()) {
      TAILCAST_CHECK(message->size() <= kMessageBytesMax, "over the limit");
      cut.messages.emplace_back(*message);
    }
  };
  while (!bytes.empty() && splitter.status().ok()) {
    splitter.Push(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    take();
  }
  cut.status = splitter.status();
  if (cut.status.ok()) {
    cut.status = splitter.Finish();
    take();
    if (cut.status.ok()) cut.status = splitter.status();
  }
  TAILCAST_CHECK(splitter.messages() == static_cast<int64_t>(cut.messages.size()));
  return cut;
}

void Try(Framing framing, std::string_view bytes, size_t piece) {
  const Cut whole = CutUp(framing, bytes, std::max<size_t>(bytes.size(), 1));
  const Cut pieces = CutUp(framing, bytes, piece);
  TAILCAST_CHECK(whole.messages == pieces.messages, "the pieces make no difference");
  TAILCAST_CHECK(whole.status.ok() == pieces.status.ok(), "the pieces make no difference");
  std::string joined;
  for (const std::string& message : whole.messages) {
    TAILCAST_CHECK(AppendFrame(framing, message, joined).ok());
  }
  TAILCAST_CHECK(bytes.starts_with(joined), "the messages joined are the input");
  if (whole.status.ok()) TAILCAST_CHECK(joined == bytes, "to its end");
}

}  // namespace
}  // namespace tailcast::stream

// Framing, size of the pieces, then the stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailcast::fuzz::Input input(data, size);
  const auto framing = static_cast<tailcast::stream::Framing>(input.Take<uint8_t>() % 2);
  const size_t piece = 1 + input.Take<uint8_t>() % 64;
  tailcast::stream::Try(framing, input.Rest(), piece);
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  std::string length("\1\3", 2);
  TAILCAST_CHECK(AppendFrame(stream::Framing::kLength, "a message", length).ok());
  TAILCAST_CHECK(AppendFrame(stream::Framing::kLength, "", length).ok());
  TAILCAST_CHECK(AppendFrame(stream::Framing::kLength, std::string(300, 'x'), length).ok());
  return {length, std::string("\0\5", 2) + "one\ntwo\n\nlast without an end",
          std::string("\0\x1f", 2) + std::string(400, 'y') + "\n"};
}
