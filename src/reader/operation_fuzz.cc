// What reaches a reader's operation from outside: the replies of its writer, and the values of the
// metadata cache, in any order.
#include <google/protobuf/stubs/logging.h>

#include "tailcast/base/check.h"
#include "tailcast/base/metrics.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/reader/operation_core.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::reader {
namespace {

constexpr int64_t kSeq = 6;  // its successor is in the same group
enum class Step : uint8_t { kReply, kMetadata, kSizes, kWork, kTick };
constexpr uint8_t kSteps = 5;

class Running {
 public:
  explicit Running(stream::Layer layer, bool fresh)
      : core_(options_, TheOperation(layer, fresh), counters_, now_) {}

  void Reply(std::string_view bytes) {
    v1::CopyReply reply;
    Effects out;
    if (reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      core_.OnReply(now_, reply, out);
    } else {
      core_.OnWrongMessage(InvalidArgumentError("fuzzed"), out);
    }
    Look();
  }
  void Metadata(std::string_view value) {
    Effects out;
    core_.OnMetadata(now_, stream::DecodePairMetadata(kSeq, value),
                     stream::DecodePairMetadata(kSeq + 1, value), out);
    Look();
  }
  void Size(int64_t committed) {
    Effects out;
    core_.OnPrimarySize(now_, stream::Part::kData, committed, out);
    Look();
  }
  // Reads as much as is asked for, or a part of it.
  void Work(uint8_t thousandths) {
    while (core_.NextMessage().has_value()) {
    }
    for (int i = 0; i < 16; ++i) {
      const auto read = core_.NextRead(now_, 0);
      if (!read) break;
      TAILCAST_CHECK(read->from >= 0 && read->to > read->from, "an impossible range");
      const int64_t size = read->to - read->from;
      TAILCAST_CHECK(size <= options_.copy.piece_bytes_max, "more than a message takes");
      const std::string bytes(static_cast<size_t>(size), 'x');
      stream::RangeResult result;
      result.end = read->from + size * (thousandths % 5) / 4;
      const auto message = core_.OnRead(now_, *read, result, read->from, bytes);
      if (message) {
        TAILCAST_CHECK(message->bytes().position() >= 0 && !message->bytes().bytes().empty());
      }
    }
    (void)core_.TakeHeartbeat();
    Look();
  }
  void Tick() {
    now_ = now_ + Duration::Millis(300);
    Effects out;
    core_.OnTick(now_, 0, out);
    Look();
  }

 private:
  static stream::Operation TheOperation(stream::Layer layer, bool fresh) {
    stream::Operation operation;
    operation.target.file = {{{"flights", stream::StreamIncarnation{5}}, 0}, {kSeq, 1000, 4096, 3}};
    operation.target.layer = layer;
    operation.target.cell = "eu";
    operation.id = {stream::Term{.attempt = 7}, stream::Nonce{1}};
    operation.source_cell = "us";
    operation.chunk_size = 512;
    operation.fresh = fresh;
    return operation;
  }
  void Look() {
    v1::OperationReport report;
    core_.Report(now_, &report);
    TAILCAST_CHECK(report.data_length() >= 0 && report.index_length() >= 0 &&
                   report.source_data_length() >= 0 && report.source_index_length() >= 0);
  }

  MetricRegistry metrics_;
  Counters counters_{metrics_};
  const ReaderOptions options_;
  MonotonicTime now_ = MonotonicTime::FromMicros(1'000'000);
  OperationCore core_;
};

void Run(fuzz::Input input) {
  const auto kind = input.Take<uint8_t>();
  Running running(static_cast<stream::Layer>(kind & 1), (kind & 2) != 0);
  for (int steps = 0; !input.empty() && steps < 100; ++steps) {
    const auto step = static_cast<Step>(input.Take<uint8_t>() % kSteps);
    switch (step) {
      case Step::kReply:
        running.Reply(input.Bytes(input.Take<uint8_t>()));
        break;
      case Step::kMetadata:
        running.Metadata(input.Bytes(input.Take<uint16_t>()));
        break;
      case Step::kSizes:
        // The store's word is not a peer's: it is a length.
        running.Size(input.Take<int64_t>() & ((int64_t{1} << 40) - 1));
        break;
      case Step::kWork:
        running.Work(input.Take<uint8_t>());
        break;
      case Step::kTick:
        running.Tick();
        break;
    }
  }
}

}  // namespace
}  // namespace tailcast::reader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const google::protobuf::LogSilencer quiet;
  tailcast::reader::Run(tailcast::fuzz::Input(data, size));
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::reader;  // NOLINT(google-build-using-namespace)
  const auto reply_of = [](const v1::CopyReply& reply) {
    const std::string bytes = reply.SerializeAsString();
    return std::string(1, static_cast<char>(Step::kReply)) + static_cast<char>(bytes.size()) +
           bytes;
  };
  v1::CopyReply opened, progress, superseded;
  opened.mutable_opened()->set_window_bytes(1 << 20);
  progress.mutable_progress()->set_data_length(5000);
  progress.mutable_progress()->set_index_length(64);
  superseded.mutable_superseded()->set_term(1 << 24);
  stream::PairMetadata pair;
  pair.created_us = 1000;
  pair.start_byte = 4096;
  pair.start_number = 3;
  pair.cache_length[0] = pair.primary_length[0] = 6000;
  pair.cache_length[1] = pair.primary_length[1] = 96;
  pair.heartbeat_us = 1763722199123456;
  stream::PairMetadata next = pair;
  next.start_byte = 4096 + 6000;
  next.start_number = 6;
  std::string value = stream::EncodePairMetadata(kSeq + 1, next);
  const std::string first = stream::EncodePairMetadata(kSeq, pair);
  value.replace(0, first.size(), first);
  std::string metadata(1, static_cast<char>(Step::kMetadata));
  Append(metadata, static_cast<uint16_t>(value.size()));
  metadata += value;
  const std::string work = {static_cast<char>(Step::kWork), 4};
  const std::string tick(1, static_cast<char>(Step::kTick));
  std::vector<std::string> seeds;
  for (char kind = 0; kind < 4; ++kind) {
    seeds.push_back(std::string(1, kind) + metadata + reply_of(opened) + work + reply_of(progress) +
                    tick + work + reply_of(superseded));
  }
  return seeds;
}
