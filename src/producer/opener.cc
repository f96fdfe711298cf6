#include "tailcast/producer/opener.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/fault_point.h"

namespace tailcast::producer {

using stream::Part;

namespace {

FAULT_POINT(kSkipFence, "producer.skip_fence", "a recovering opener does not fence the head");

constexpr Duration kMetadataTimeout = Duration::Seconds(1);

}  // namespace

Opener::Opener(const stream::CellPorts& ports, const stream::ShardId& shard, OpenOptions options,
               uint64_t seed, Callback<void(OpenEffect)> on_event)
    : ports_(ports),
      dir_(stream::ShardDir(shard)),
      keys_(shard),
      on_event_(std::move(on_event)),
      core_(shard, options, seed),
      wait_(*ports.loop) {}

void Opener::Start() { CarryOut(core_.Start()); }

void Opener::StartRoll(const stream::Stem& current, const stream::Seal& seal,
                       int64_t last_time_us) {
  CarryOut(core_.StartRoll(current, seal, last_time_us, now()));
}

void Opener::StartRecovery(const stream::Stem& current, Duration wait) {
  if (wait == Duration()) {
    CarryOut(core_.StartRecovery(current));
    return;
  }
  wait_.After(wait, scope_.Bind([this, current] { CarryOut(core_.StartRecovery(current)); }));
}

void Opener::TryAgain(Duration wait) {
  wait_.After(wait, scope_.Bind([this] { CarryOut(core_.OnWaited()); }));
}

std::unique_ptr<storage::AppendFile> Opener::TakeFile(Part part) {
  return std::move(created_[static_cast<int>(part)]);
}

void Opener::CarryOut(OpenEffect effect) {
  switch (effect.kind) {
    case OpenEffect::Kind::kList:
      ports_.store->List(dir_, scope_.Bind([this](Result<std::vector<storage::DirEntry>> entries) {
        CarryOut(core_.OnListed(std::move(entries), now()));
      }));
      return;
    case OpenEffect::Kind::kReadMetadata:
      ReadMetadata(effect.stem.seq);
      return;
    case OpenEffect::Kind::kWait:
      TryAgain(effect.wait);
      return;
    case OpenEffect::Kind::kFence:
      Fence(effect);
      return;
    case OpenEffect::Kind::kReadIndex:
      ReadIndex(effect);
      return;
    case OpenEffect::Kind::kCreate:
      Create(effect);
      return;
    case OpenEffect::Kind::kFailing:
    case OpenEffect::Kind::kFull:
    case OpenEffect::Kind::kOpened:
    case OpenEffect::Kind::kFailed:
      on_event_(std::move(effect));
      return;
  }
}

void Opener::ReadMetadata(int64_t seq) {
  ports_.metadata_cache->ReadValues(
      {{keys_.MetadataGroup(seq)}, {keys_.MetadataGroup(seq + 1)}}, kMetadataTimeout,
      scope_.Bind([this, seq](Result<cache::Values> values) {
        if (!values.ok()) {
          CarryOut(core_.OnMetadata(values.status()));
          return;
        }
        if (!(*values)[0].complete || !(*values)[1].complete) {
          CarryOut(core_.OnPartialMetadata());
          return;
        }
        std::vector<stream::PairMetadata> metadata;
        for (int64_t i = 0; i < 2; ++i) {
          const auto& value = (*values)[static_cast<size_t>(i)];
          metadata.push_back(value.has_value() ? stream::DecodePairMetadata(seq + i, *value)
                                               : stream::PairMetadata());
        }
        CarryOut(core_.OnMetadata(std::move(metadata)));
      }));
}

void Opener::Fence(const OpenEffect& effect) {
  const std::string name = FileName(effect.stem, effect.part);
  if (kSkipFence.planted()) {
    ports_.store->OpenRead(
        dir_, name, scope_.Bind([this](Result<std::unique_ptr<storage::ReadFile>> file) {
          if (!file.ok()) {
            CarryOut(core_.OnFenced(file.status(), now()));
            return;
          }
          reading_ = std::move(*file);
          reading_->Size(scope_.Bind([this](Result<storage::FileSize> size) {
            Retire(*ports_.loop, std::move(reading_));
            CarryOut(core_.OnFenced(size.ok() ? Result<int64_t>(size->committed_length)
                                              : Result<int64_t>(size.status()),
                                    now()));
          }));
        }));
    return;
  }
  ports_.store->OpenFencing(
      dir_, name, scope_.Bind([this](Result<std::unique_ptr<storage::AppendFile>> file) {
        CarryOut(core_.OnFenced(file.ok() ? Result<int64_t>((*file)->committed_length())
                                          : Result<int64_t>(file.status()),
                                now()));
      }));
}

void Opener::ReadIndex(const OpenEffect& effect) {
  ports_.store->OpenRead(
      dir_, FileName(effect.stem, effect.part),
      scope_.Bind([this, effect](Result<std::unique_ptr<storage::ReadFile>> file) {
        if (!file.ok()) {
          CarryOut(core_.OnIndexRead(file.status(), now()));
          return;
        }
        reading_ = std::move(*file);
        reading_->Read(
            effect.from, effect.to - effect.from,
            scope_.Bind([this, effect](Result<std::string> bytes) {
              Retire(*ports_.loop, std::move(reading_));
              if (bytes.ok() && static_cast<int64_t>(bytes->size()) < effect.to - effect.from) {
                bytes = UnavailableError(FileName(effect.stem, effect.part) +
                                         " reads shorter than it is");
              }
              CarryOut(core_.OnIndexRead(std::move(bytes), now()));
            }));
      }));
}

void Opener::Create(const OpenEffect& effect) {
  ports_.store->CreateExclusive(
      dir_, FileName(effect.stem, effect.part), CreationKey(effect.stem.seq, effect.part),
      scope_.Bind([this, effect](Result<std::unique_ptr<storage::AppendFile>> file) {
        if (file.ok() && !effect.helping) {
          created_[static_cast<int>(effect.part)] = std::move(*file);
        }
        CarryOut(core_.OnCreated(file.status()));
      }));
}

}  // namespace tailcast::producer
