// What reaches a writer's operation from outside: the messages of its reader, and the values of the
// metadata cache that it reads (metadata of the pair, the lock), in any order.
#include <google/protobuf/stubs/logging.h>

#include <variant>

#include "tailcast/base/check.h"
#include "tailcast/base/metrics.h"
#include "tailcast/fuzz/target.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/lock.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/writer/cache_operation_core.h"
#include "tailcast/writer/copy_messages.h"
#include "tailcast/writer/primary_operation_core.h"

namespace tailcast::writer {
namespace {

constexpr int64_t kChunkSize = 512;
enum class Step : uint8_t { kMessage, kMetadata, kLock, kAnswer, kFail, kWork };
constexpr uint8_t kSteps = 6;

stream::Operation TheOperation(stream::Layer layer, bool fresh) {
  stream::Operation operation;
  operation.target.file = {{{"flights", stream::StreamIncarnation{5}}, 0}, {7, 1000, 4096, 3}};
  operation.target.layer = layer;
  operation.target.cell = "eu";
  operation.id = {stream::Term{.attempt = 7}, stream::Nonce{1}};
  operation.source_cell = "us";
  operation.chunk_size = kChunkSize;
  operation.fresh = fresh;
  return operation;
}

// Gives inputs to one core and answers its effects.
template <typename Core>
class Running {
 public:
  explicit Running(bool fresh)
      : context_{options_, TheOperation(Core::kLayer, fresh), stream::FileSteps(), counters_,
                 buffers_},
        core_(context_) {
    Give(&Core::Start);
  }

  void Message(const std::string& bytes) {
    Result<ReaderMessage> message = ParseReaderMessage(bytes, kChunkSize);
    if (!message.ok()) {
      TAILCAST_CHECK(IsInvalidArgument(message.status()), "bad input, and nothing else");
      return Give(&Core::OnWrongMessage, message.status());
    }
    if (auto* m = std::get_if<BytesMessage>(&*message)) {
      TAILCAST_CHECK(m->position >= 0 && !m->bytes.empty());
      Give(&Core::OnBytes, m->part, m->position, std::move(m->bytes));
    } else if (auto* m = std::get_if<JumpMessage>(&*message)) {
      TAILCAST_CHECK(m->position >= 0 && m->position % kChunkSize == 0);
      Give(&Core::OnJump, m->part, m->position);
    } else if (auto* m = std::get_if<SealMessage>(&*message)) {
      Give(&Core::OnSeal, m->lengths);
    } else if (auto* m = std::get_if<HeartbeatMessage>(&*message)) {
      Give(&Core::OnHeartbeat, m->as_of_us, m->lengths);
    }
  }
  void Lock(std::string_view value) { Give(&Core::OnLockRead, stream::DecodeLock(value)); }
  void Metadata(std::string_view value) {
    if constexpr (Core::kLayer == stream::Layer::kCache) {
      Give(&Core::OnMetadata, stream::DecodePairMetadata(7, value));
    }
  }
  void Work() {
    now_ = now_ + Duration::Millis(200);
    Give(&Core::DoWork);
  }
  // Answers the effect that waits longest.
  void Answer(bool well) {
    if (waiting_.empty()) return;
    const Effect effect = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    const Status status = well ? OkStatus() : UnavailableError("fuzzed");
    if (std::holds_alternative<PublishMetadata>(effect)) return Give(&Core::OnPublished, status);
    if constexpr (Core::kLayer == stream::Layer::kCache) {
      if (const auto* write = std::get_if<WriteChunks>(&effect)) {
        Give(&Core::OnChunksWritten, write->batch, status);
      }
    } else {
      if (std::holds_alternative<AskFloor>(effect)) {
        return Give(&Core::OnFloor, well ? Result<int64_t>(1) : Result<int64_t>(status));
      }
      if (std::holds_alternative<ReadLock>(effect)) return Give(&Core::OnWinner, std::nullopt);
      if (const auto* open = std::get_if<OpenFile>(&effect)) {
        return Give(&Core::OnFileOpened, open->part,
                    well ? Result<OpenedFile>(OpenedFile{0, storage::Epoch::kFirst})
                    : open->part == stream::Part::kData
                        ? Result<OpenedFile>(NotFoundError("fuzzed"))
                        : Result<OpenedFile>(DataLossError("fuzzed")));
      }
      if (const auto* aside = std::get_if<SetAside>(&effect)) {
        return Give(&Core::OnSetAside, aside->part, status);
      }
      if (const auto* append = std::get_if<AppendToFile>(&effect)) {
        storage::AppendResult result;
        result.outcome = well ? storage::AppendOutcome::kApplied : storage::AppendOutcome::kFenced;
        Give(&Core::OnAppended, append->part, result);
      }
    }
  }

 private:
  template <typename Method, typename... Arguments>
  void Give(Method method, Arguments&&... arguments) {
    Effects out;
    (core_.*method)(now_, std::forward<Arguments>(arguments)..., out);
    for (Effect& effect : out) {
      CheckEffect(effect);
      waiting_.push_back(std::move(effect));
    }
    if (waiting_.size() > 64) waiting_.erase(waiting_.begin(), waiting_.end() - 64);
    const LayerView layer = core_.layer();
    TAILCAST_CHECK(layer.written[0] >= 0 && layer.written[1] >= 0 && layer.outstanding >= 0);
  }

  void CheckEffect(const Effect& effect) {
    if (const auto* append = std::get_if<AppendToFile>(&effect)) {
      TAILCAST_CHECK(append->offset >= 0 && !append->bytes.empty());
      if (append->part == stream::Part::kIndex) {
        TAILCAST_CHECK(append->bytes.size() % stream::kIndexRecordSize == 0, "whole records only");
        for (size_t at = 0; at < append->bytes.size(); at += stream::kIndexRecordSize) {
          TAILCAST_CHECK(stream::IndexRecord::Decode(append->bytes.data() + at).has_value(),
                         "no record is appended that nobody can read");
        }
      }
    } else if (const auto* write = std::get_if<WriteChunks>(&effect)) {
      for (const ChunkValue& chunk : write->chunks) {
        TAILCAST_CHECK(chunk.chunk >= 0 && !chunk.value.empty() &&
                       chunk.value.size() <= static_cast<size_t>(kChunkSize));
      }
    } else if (const auto* publish = std::get_if<PublishMetadata>(&effect)) {
      const std::string value = stream::EncodePairMetadata(7, publish->metadata);
      TAILCAST_CHECK(stream::DecodePairMetadata(7, value) == publish->metadata,
                     "what is published can be read");
    }
  }

  MetricRegistry metrics_;
  Counters counters_{metrics_};
  BufferShare buffers_{1 << 20, counters_.buffered_primary};
  const WriterOptions options_{.name = "writer-1", .cell = "eu"};
  MonotonicTime now_ = MonotonicTime::FromMicros(1'000'000);
  const CoreContext context_;
  Core core_;
  Effects waiting_;
};

template <typename Core>
void Run(fuzz::Input input, bool fresh) {
  Running<Core> running(fresh);
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    const auto step = static_cast<Step>(input.Take<uint8_t>() % kSteps);
    const auto bytes = [&] { return input.Bytes(input.Take<uint16_t>()); };
    switch (step) {
      case Step::kMessage:
        running.Message(std::string(bytes()));
        break;
      case Step::kMetadata:
        running.Metadata(bytes());
        break;
      case Step::kLock:
        running.Lock(input.Bytes(24));
        break;
      case Step::kAnswer:
      case Step::kFail:
        running.Answer(step == Step::kAnswer);
        break;
      case Step::kWork:
        running.Work();
        break;
    }
  }
}

}  // namespace
}  // namespace tailcast::writer

// Layer and freshness, then steps.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tailcast;  // NOLINT(google-build-using-namespace)
  const google::protobuf::LogSilencer quiet;
  fuzz::Input input(data, size);
  const auto kind = input.Take<uint8_t>();
  const bool fresh = (kind & 2) != 0;
  if ((kind & 1) != 0) {
    writer::Run<writer::CacheOperationCore>(input, fresh);
  } else {
    writer::Run<writer::PrimaryOperationCore>(input, fresh);
  }
  return 0;
}

std::vector<std::string> tailcast::fuzz::Seeds() {
  using namespace tailcast::writer;  // NOLINT(google-build-using-namespace)
  const auto sized = [](Step step, const std::string& bytes) {
    std::string out(1, static_cast<char>(step));
    Append(out, static_cast<uint16_t>(bytes.size()));
    return out + bytes;
  };
  const auto message = [&](const v1::CopyRequest& request) {
    return sized(Step::kMessage, request.SerializeAsString());
  };
  v1::CopyRequest data, index, seal, beat, jump;
  data.mutable_bytes()->set_bytes(std::string(700, 'd'));
  std::string record;
  stream::IndexRecord{0, 700, 0, 5}.AppendTo(record);
  index.mutable_bytes()->set_part(1);
  index.mutable_bytes()->set_bytes(record);
  seal.mutable_seal()->set_data_length(700);
  seal.mutable_seal()->set_index_length(32);
  beat.mutable_heartbeat()->set_as_of_us(1763722199123456);
  beat.mutable_heartbeat()->set_data_length(700);
  beat.mutable_heartbeat()->set_index_length(32);
  jump.mutable_jump()->set_position(51200);

  const std::string work(1, static_cast<char>(Step::kWork));
  const std::string answers(3, static_cast<char>(Step::kAnswer));
  const std::string lock = std::string(1, static_cast<char>(Step::kLock)) +
                           stream::EncodeLock({stream::Term{.attempt = 3}, 9});
  stream::PairMetadata pair;
  pair.created_us = 1000;
  pair.cache_length[0] = pair.primary_length[0] = 60000;
  const std::string metadata = sized(Step::kMetadata, stream::EncodePairMetadata(7, pair));
  std::vector<std::string> seeds;
  for (char kind = 0; kind < 4; ++kind) {
    std::string seed(1, kind);
    seed += lock.substr(0, 1) + std::string(24, '\0') + metadata + answers + answers;
    seed += message(data) + message(index) + work + answers + message(beat) + work + answers;
    seed += message(jump) + metadata + work + message(seal) + work + answers + lock;
    seeds.push_back(seed);
  }
  return seeds;
}
