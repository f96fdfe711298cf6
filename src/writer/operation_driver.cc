#include "tailcast/writer/operation_driver.h"

#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/writer/copy_messages.h"

namespace tailcast::writer {
namespace {

const Logger kLog("writer");

stream::FileSteps StepsOf(const stream::CellPorts& ports, const stream::FileId& file) {
  return {ports.steps, file, "writer", ports.steps != nullptr ? ports.steps->NewName() : ""};
}

std::vector<cache::Mutation> OneMutation(cache::Key key, cache::MergeRule rule, std::string value) {
  cache::Mutation mutation;
  mutation.key = key;
  mutation.rule = rule;
  mutation.value = std::move(value);
  std::vector<cache::Mutation> mutations;
  mutations.push_back(std::move(mutation));
  return mutations;
}

using Values = Result<cache::Values>;

}  // namespace

OperationDriver::OperationDriver(const DriverPorts& ports, rpc::Stream& stream,
                                 stream::Operation operation, UniqueFunction<void()> on_ended)
    : ports_(ports),
      stream_(stream),
      on_ended_(std::move(on_ended)),
      context_{ports.options, operation, StepsOf(ports.ports, operation.target.file),
               ports.counters,
               operation.target.layer == stream::Layer::kPrimary ? ports.primary_buffers
                                                                 : ports.cache_buffers},
      keys_(context_.file().shard),
      core_(MakeCore(context_)),
      timer_(*ports.ports.loop) {}

OperationDriver::Core OperationDriver::MakeCore(const CoreContext& context) {
  if (context.operation.target.layer == stream::Layer::kPrimary) {
    return Core(std::in_place_type<PrimaryOperationCore>, context);
  }
  return Core(std::in_place_type<CacheOperationCore>, context);
}

const LifeCore& OperationDriver::life() const {
  return std::visit([](const auto& core) -> const LifeCore& { return core.life(); }, core_);
}

cache::Key OperationDriver::lock_key() const {
  return keys_.Lock(context_.file().stem.seq, static_cast<int>(context_.operation.target.layer));
}

// --- inputs

template <typename Input>
void OperationDriver::Give(Input input) {
  Effects effects;
  const MonotonicTime now = ports_.ports.loop->Now();
  std::visit([&](auto& core) { input(core, now, effects); }, core_);
  CarryOut(effects);
}

template <typename LayerCore, typename Input>
void OperationDriver::GiveTo(Input input) {
  Effects effects;
  input(std::get<LayerCore>(core_), ports_.ports.loop->Now(), effects);
  CarryOut(effects);
}

void OperationDriver::CarryOut(Effects& effects) {
  for (Effect& effect : effects) {
    std::visit([this](auto& one) { Do(one); }, effect);
  }
  ArmTimer();
}

void OperationDriver::ArmTimer() {
  const MonotonicTime due = std::visit([](const auto& core) { return core.next_due(); }, core_);
  if (due == MonotonicTime::Max()) return timer_.Cancel();
  if (timer_.armed() && timer_.when() == due) return;
  timer_.At(due, scope_.Bind([this] {
    Give([](auto& core, MonotonicTime now, Effects& out) { core.DoWork(now, out); });
  }));
}

void OperationDriver::Start() {
  Give([](auto& core, MonotonicTime now, Effects& out) { core.Start(now, out); });
}

void OperationDriver::OnMessage(const std::string& message) {
  if (ended()) return;
  auto parsed = ParseReaderMessage(message, context_.operation.chunk_size);
  if (!parsed.ok()) {
    Give([&](auto& core, MonotonicTime now, Effects& out) {
      core.OnWrongMessage(now, parsed.status(), out);
    });
  } else if (auto* bytes = std::get_if<BytesMessage>(&*parsed)) {
    Give([&](auto& core, MonotonicTime now, Effects& out) {
      core.OnBytes(now, bytes->part, bytes->position, std::move(bytes->bytes), out);
    });
  } else if (const auto* jump = std::get_if<JumpMessage>(&*parsed)) {
    Give([&](auto& core, MonotonicTime now, Effects& out) {
      core.OnJump(now, jump->part, jump->position, out);
    });
  } else if (const auto* seal = std::get_if<SealMessage>(&*parsed)) {
    Give(
        [&](auto& core, MonotonicTime now, Effects& out) { core.OnSeal(now, seal->lengths, out); });
  } else if (const auto* beat = std::get_if<HeartbeatMessage>(&*parsed)) {
    Give([&](auto& core, MonotonicTime now, Effects& out) {
      core.OnHeartbeat(now, beat->as_of_us, beat->lengths, out);
    });
  }
}

void OperationDriver::OnStreamClosed(const Status& status) {
  Give([&](auto& core, MonotonicTime now, Effects& out) { core.OnReaderGone(now, status, out); });
}

void OperationDriver::OnLockRead(const std::optional<stream::LockValue>& seen) {
  Give([&](auto& core, MonotonicTime now, Effects& out) { core.OnLockRead(now, seen, out); });
}

void OperationDriver::OnLockUnavailable() {
  Give([](auto& core, MonotonicTime now, Effects& out) { core.OnLockUnavailable(now, out); });
}

void OperationDriver::OnNewEpoch() {
  Give([](auto& core, MonotonicTime now, Effects& out) { core.OnNewEpoch(now, out); });
}

// --- the reader

void OperationDriver::Do(SendOpened& effect) { stream_.Send(Serialize(effect)); }
void OperationDriver::Do(SendProgress& effect) { stream_.Send(Serialize(effect)); }
void OperationDriver::Do(SendSuperseded& effect) { stream_.Send(Serialize(effect)); }

void OperationDriver::Do(CloseStream& effect) {
  const Status& status = effect.status;
  if (IsDataLoss(status)) {
    kLog.Error(context_.Name(), ": ", status.ToString());
  } else if (effect.cause == EndCause::kRejectedInput || effect.cause == EndCause::kLayerFailed) {
    kLog.Warn(context_.Name(), ": ", status.ToString());
  }
  stream_.Close(std::move(effect.status));
  on_ended_();
}

// --- the metadata cache

void OperationDriver::Do(PublishMetadata& effect) {
  const int64_t seq = context_.file().stem.seq;
  ports_.ports.metadata_cache->Mutate(
      OneMutation(keys_.MetadataGroup(seq), cache::MergeRule::kMaxLanes,
                  stream::EncodePairMetadata(seq, effect.metadata)),
      ports_.options.cache_timeout, scope_.Bind([this](const Status& status) {
        Give([&](auto& core, MonotonicTime now, Effects& out) {
          core.OnPublished(now, status, out);
        });
      }));
}

void OperationDriver::Do(ReadMetadata&) {
  const int64_t seq = context_.file().stem.seq;
  ports_.ports.metadata_cache->ReadValues(
      {{keys_.MetadataGroup(seq), cache::MergeRule::kMaxLanes}}, ports_.options.cache_timeout,
      scope_.Bind([this, seq](const Values& values) {
        stream::PairMetadata metadata;
        if (values.ok() && (*values)[0].has_value())
          metadata = stream::DecodePairMetadata(seq, *(*values)[0]);
        GiveTo<CacheOperationCore>([&](CacheOperationCore& core, MonotonicTime now, Effects& out) {
          core.OnMetadata(now, metadata, out);
        });
      }));
}

void OperationDriver::Do(ReadLock&) {
  ports_.ports.metadata_cache->ReadValues(
      {{lock_key(), cache::MergeRule::kMaxBytes}}, ports_.options.cache_timeout,
      scope_.Bind([this](const Values& values) {
        std::optional<stream::LockValue> winner;
        if (values.ok() && (*values)[0].has_value()) winner = stream::DecodeLock(*(*values)[0]);
        GiveTo<PrimaryOperationCore>([&](PrimaryOperationCore& core, MonotonicTime now,
                                         Effects& out) { core.OnWinner(now, winner, out); });
      }));
}

void OperationDriver::Do(WriteLock& effect) {
  ports_.ports.metadata_cache->Mutate(
      OneMutation(lock_key(), cache::MergeRule::kMaxBytes, stream::EncodeLock(effect.value)),
      ports_.options.cache_timeout, scope_.Bind([](const Status&) {}));
}

// --- the layers

void OperationDriver::Do(AskFloor& effect) {
  const auto on_floor = [this](const Result<int64_t>& floor) {
    GiveTo<PrimaryOperationCore>([&](PrimaryOperationCore& core, MonotonicTime now, Effects& out) {
      core.OnFloor(now, floor, out);
    });
  };
  const stream::ShardId& shard = context_.file().shard;
  if (effect.look) {
    ports_.cell.LookAtFloor(shard, scope_.Bind(on_floor));
  } else {
    ports_.cell.AskFloor(shard, scope_.Bind(on_floor));
  }
}

void OperationDriver::Do(OpenFile& effect) {
  const std::string dir = stream::ShardDir(context_.file().shard);
  const stream::Part part = effect.part;
  const std::string name = stream::FileName(context_.file().stem, part);
  auto done = scope_.Bind([this, part](Result<std::unique_ptr<storage::AppendFile>> file) {
    OnOpened(part, std::move(file));
  });
  if (effect.create) {
    const std::string key = stream::CreationKey(context_.file().stem.seq, part);
    ports_.ports.store->CreateExclusive(dir, name, key, std::move(done));
    return;
  }
  // Whoever appends looks at the end only; whoever reads finds out what is missing before it.
  ports_.ports.store->OpenRead(
      dir, name,
      scope_.Bind([this, dir, name, part, done = std::move(done)](
                      Result<std::unique_ptr<storage::ReadFile>> file) mutable {
        if (!file.ok()) return OnOpened(part, file.status());
        look_ = std::move(*file);
        look_->CheckedSize(scope_.Bind([this, dir, name, part, done = std::move(done)](
                                           const Result<storage::FileSize>& size) mutable {
          Retire(*ports_.ports.loop, std::move(look_));
          if (!size.ok()) return OnOpened(part, size.status());
          ports_.ports.store->OpenFencing(dir, name, std::move(done));
        }));
      }));
}

void OperationDriver::OnOpened(stream::Part part,
                               Result<std::unique_ptr<storage::AppendFile>> file) {
  Result<OpenedFile> opened =
      file.ok() ? Result<OpenedFile>(OpenedFile{(*file)->committed_length(), (*file)->epoch()})
                : Result<OpenedFile>(file.status());
  if (file.ok()) files_[static_cast<int>(part)] = std::move(*file);
  GiveTo<PrimaryOperationCore>([&](PrimaryOperationCore& core, MonotonicTime now, Effects& out) {
    core.OnFileOpened(now, part, opened, out);
  });
}

void OperationDriver::Do(SetAside& effect) {
  const stream::Part part = effect.part;
  kLog.Error(context_.Name(), ": ", effect.why.message(), "; it is set aside and copied again");
  ports_.ports.store->Quarantine(
      stream::ShardDir(context_.file().shard), stream::FileName(context_.file().stem, part),
      scope_.Bind([this, part](const Status& status) {
        GiveTo<PrimaryOperationCore>(
            [&](PrimaryOperationCore& core, MonotonicTime now, Effects& out) {
              core.OnSetAside(now, part, status, out);
            });
      }));
}

void OperationDriver::Do(AppendToFile& effect) {
  const stream::Part part = effect.part;
  files_[static_cast<int>(part)]->AppendAt(
      effect.offset, std::move(effect.bytes),
      scope_.Bind([this, part](const storage::AppendResult& result) {
        GiveTo<PrimaryOperationCore>(
            [&](PrimaryOperationCore& core, MonotonicTime now, Effects& out) {
              core.OnAppended(now, part, result, out);
            });
      }));
}

void OperationDriver::Do(WriteChunks& effect) {
  std::vector<cache::Mutation> mutations;
  for (ChunkValue& chunk : effect.chunks) {
    cache::Mutation mutation;
    mutation.key = keys_.Chunk(context_.file().stem.seq, chunk.part, context_.operation.chunk_size,
                               chunk.chunk);
    mutation.rule = cache::MergeRule::kLongerWins;
    mutation.value = std::move(chunk.value);
    mutations.push_back(std::move(mutation));
  }
  ports_.ports.data_cache->Mutate(
      std::move(mutations), ports_.options.cache_timeout,
      scope_.Bind([this, batch = effect.batch](const Status& status) {
        if (IsDataLoss(status)) {
          kLog.Error(context_.Name(),
                     ": the data cache had other bytes; both were dropped: ", status.message());
        }
        GiveTo<CacheOperationCore>([&](CacheOperationCore& core, MonotonicTime now, Effects& out) {
          core.OnChunksWritten(now, batch, status, out);
        });
      }));
}

void OperationDriver::Do(NotifyScheduler& effect) {
  ports_.cell.Notify(context_.file(), effect.seal);
}

void OperationDriver::Do(DoWorkLater&) {
  if (work_posted_) return;
  work_posted_ = true;
  ports_.ports.loop->Post(scope_.Bind([this] {
    work_posted_ = false;
    Give([](auto& core, MonotonicTime now, Effects& out) { core.DoWork(now, out); });
  }));
}

}  // namespace tailcast::writer
