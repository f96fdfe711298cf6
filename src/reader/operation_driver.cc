#include "tailcast/reader/operation_driver.h"

#include <utility>

#include "tailcast/base/log.h"

namespace tailcast::reader {
namespace {
const Logger kLog("reader");
}  // namespace

using stream::PairMetadata;
using stream::Part;

OperationDriver::OperationDriver(const stream::CellPorts& ports, const ReaderOptions& options,
                                 Counters& counters, std::shared_ptr<rpc::Client> client,
                                 stream::Operation operation, Hooks hooks)
    : ports_(ports),
      options_(options),
      hooks_(std::move(hooks)),
      core_(options, std::move(operation), counters, ports.loop->Now()),
      group_(stream::KeyMaker(core_.operation().target.file.shard)
                 .MetadataGroup(core_.operation().target.file.stem.seq)),
      client_(std::move(client)) {
  const stream::Operation& op = core_.operation();
  for (int p = 0; p < stream::kParts; ++p) {
    readers_[p] = std::make_unique<stream::RangeReader>(
        ports, op.target.file, static_cast<Part>(p), op.chunk_size,
        stream::RangeReader::Options{.cache_timeout = options.cache_timeout});
  }
}

// --- inputs

template <typename Input>
void OperationDriver::Give(Input input) {
  if (core_.ended()) return;
  Effects effects;
  input(core_, ports_.loop->Now(), effects);
  if (effects.opened) {
    hooks_.on_opened();
  } else if (effects.changed) {
    hooks_.on_changed();
  }
  if (effects.ask_sizes) AskSizes();
  if (effects.ended) return Close();
  if (effects.do_work) DoWorkLater();
}

void OperationDriver::Start() {
  const stream::Operation& op = core_.operation();
  stream_ = client_->Open("/tailcast.v1.Writer/Copy");
  rpc::Stream::Callbacks callbacks;
  callbacks.on_message = scope_.Bind([this](const std::string& message) {
    const auto reply = rpc::Parse<v1::CopyReply>(message);
    Give([&](OperationCore& core, MonotonicTime now, Effects& out) {
      if (reply.ok()) {
        core.OnReply(now, *reply, out);
      } else {
        core.OnWrongMessage(reply.status(), out);
      }
    });
  });
  callbacks.on_drained = scope_.Bind([this] {
    Give([](OperationCore& core, MonotonicTime, Effects& out) { core.OnDrained(out); });
  });
  callbacks.on_closed = scope_.Bind([this](const Status& status) {
    Give([&](OperationCore& core, MonotonicTime, Effects& out) { core.OnClosed(status, out); });
  });
  stream_->SetCallbacks(std::move(callbacks));
  v1::CopyRequest request;
  stream::ToProto(op, request.mutable_open()->mutable_operation());
  request.mutable_open()->set_reader(options_.name);
  Send(request);
  if (op.sealed()) OnSeal(*op.seal[0], *op.seal[1]);
}

void OperationDriver::OnValue(const std::string& value) {
  const int64_t seq = core_.operation().target.file.stem.seq;
  const bool next_is_there = (seq + 1) % stream::kPairsPerGroup != 0;
  const PairMetadata pair = stream::DecodePairMetadata(seq, value);
  const PairMetadata next =
      next_is_there ? stream::DecodePairMetadata(seq + 1, value) : PairMetadata();
  Give([&](OperationCore& core, MonotonicTime now, Effects& out) {
    core.OnMetadata(now, pair, next, out);
  });
}

void OperationDriver::OnSeal(int64_t data_length, int64_t index_length) {
  Give([&](OperationCore& core, MonotonicTime now, Effects& out) {
    core.OnSeal(now, data_length, index_length, out);
  });
}

void OperationDriver::OnTick(MonotonicTime now) {
  const auto queued = static_cast<int64_t>(stream_->queued_bytes());
  Give([&](OperationCore& core, MonotonicTime, Effects& out) { core.OnTick(now, queued, out); });
}

void OperationDriver::Stop(v1::FailureCause cause, const std::string& message) {
  Give([&](OperationCore& core, MonotonicTime, Effects& out) { core.Stop(cause, message, out); });
}

// --- effects

void OperationDriver::DoWorkLater() {
  if (work_posted_) return;
  work_posted_ = true;
  ports_.loop->Post(scope_.Bind([this] {
    work_posted_ = false;
    DoWork();
  }));
}

void OperationDriver::DoWork() {
  while (const auto message = core_.NextMessage()) Send(*message);
  const auto next_read = [this] {
    return core_.NextRead(ports_.loop->Now(), static_cast<int64_t>(stream_->queued_bytes()));
  };
  while (const auto read = next_read()) StartRead(*read);
  if (const auto heartbeat = core_.TakeHeartbeat()) Send(*heartbeat);
}

void OperationDriver::StartRead(const CopyCore::Read& read) {
  stream::RangeReader& reader = *readers_[static_cast<int>(read.part)];
  const int64_t base = reader.ChunkStart(read.from);
  auto buffer = std::make_shared<std::string>(static_cast<size_t>(read.to - base), '\0');
  stream::RangeRequest request;
  request.from = read.from;
  request.to = read.to;
  request.cache_limit = read.cache_limit;
  request.primary_limit = read.primary_limit;
  request.destination = buffer->data();
  request.room = read.to - base;
  request.owner = buffer;
  const auto take = [this, read, buffer, base](const stream::RangeResult& result) {
    if (const auto bytes = core_.OnRead(ports_.loop->Now(), read, result, base, *buffer))
      Send(*bytes);
  };
  const auto at_once =
      reader.Read(request, scope_.Bind([this, take](const stream::RangeResult& result) {
        take(result);
        DoWorkLater();
      }));
  if (at_once) take(*at_once);
}

void OperationDriver::AskSizes() {
  for (Part part : {Part::kData, Part::kIndex}) {
    readers_[static_cast<int>(part)]->PrimarySize(
        scope_.Bind([this, part](const Result<storage::FileSize>& size) {
          const Result<int64_t> committed =
              size.ok() ? Result<int64_t>(size->committed_length) : Result<int64_t>(size.status());
          Give([&](OperationCore& core, MonotonicTime now, Effects& out) {
            core.OnPrimarySize(now, part, committed, out);
          });
        }));
  }
}

void OperationDriver::Close() {
  const OperationCore::Ending& ending = core_.ending();
  const stream::Operation& op = core_.operation();
  if (ending.cause == v1::CAUSE_DATA_LOSS) {
    kLog.Error(op.target.ToString(), " ended: ", ending.message);
  } else if (ending.cause != v1::CAUSE_NONE) {
    kLog.Info(op.target.ToString(), " by ", op.writer_name, " ended: ", ending.message);
  }
  stream_->Close(CancelledError("the operation ended"));
  hooks_.on_ended();
}

void OperationDriver::Send(const v1::CopyRequest& request) {
  stream_->Send(request.SerializeAsString());
}

}  // namespace tailcast::reader
