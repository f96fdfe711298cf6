#include "tailcast/app/store_reader.h"

#include <string_view>
#include <vector>

#include "tailcast/app/pair_check.h"
#include "tailcast/cell/registry_reader.h"
#include "tailcast/storage/open_store.h"

namespace tailcast::app {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr Duration kSilenceMax = Duration::Seconds(60);

}  // namespace

template <typename T, typename Ask>
T StoreReader::Wait(Ask ask) {
  std::optional<T> answer;
  const Scope scope;
  ask(scope.Bind([&](T value) { answer.emplace(std::move(value)); }));
  const MonotonicTime end = ReadMonotonicClock() + kSilenceMax;
  for (;;) {
    loop_.RunUntil([&] { return answer.has_value(); },
                   ReadMonotonicClock() + Duration::Millis(100));
    if (answer) return std::move(*answer);
    if (Interrupted()) return CancelledError("interrupted");
    if (ReadMonotonicClock() >= end) {
      return DeadlineExceededError("the primary layer does not answer");
    }
  }
}

template <typename Take>
Status StoreReader::Read(const std::string& dir, const std::string& name, Take take) {
  TAILCAST_ASSIGN_OR_RETURN(const auto file,
                            Wait<Result<std::unique_ptr<storage::ReadFile>>>(
                                [&](auto done) { store_->OpenRead(dir, name, std::move(done)); }));
  for (int64_t at = 0;;) {
    TAILCAST_ASSIGN_OR_RETURN(const std::string bytes, Wait<Result<std::string>>([&](auto done) {
                                file->Read(at, kReadBytes, std::move(done));
                              }));
    if (bytes.empty() || !take(std::string_view(bytes))) return OkStatus();
    at += static_cast<int64_t>(bytes.size());
  }
}

Result<std::unique_ptr<StoreReader>> StoreReader::Open(const v1::CellView& view) {
  TAILCAST_ASSIGN_OR_RETURN(const auto parsed, storage::ParseStoreUrl(view.store()));
  auto reader = std::unique_ptr<StoreReader>(new StoreReader);
  TAILCAST_ASSIGN_OR_RETURN(reader->store_, storage::OpenStore(&reader->loop_, parsed));
  TAILCAST_RETURN_IF_ERROR(reader->CheckOwner(view));
  return reader;
}

Status StoreReader::CheckOwner(const v1::CellView& view) {
  cell::RegistryReader registry(*store_);
  return Wait<Status>([&](auto done) { registry.CheckOwner(view, std::move(done)); });
}

Result<stream::ShardListing> StoreReader::List(const stream::ShardId& shard) {
  TAILCAST_ASSIGN_OR_RETURN(const auto entries,
                            Wait<Result<std::vector<storage::DirEntry>>>([&](auto done) {
                              store_->List(stream::ShardDir(shard), std::move(done));
                            }));
  return stream::ShardListing::Parse(entries);
}

Result<FileCondition> StoreReader::Check(const stream::ShardId& shard, const stream::Stem& stem,
                                         const std::optional<stream::Seal>& seal) {
  using Kind = FileCondition::Kind;
  const std::string dir = stream::ShardDir(shard);
  FileCondition condition;
  // What an error of reading says of the file, if it is one of the file.
  const auto of_file = [&](const Status& status, stream::Part part) -> Result<FileCondition> {
    if (!IsDataLoss(status) && !IsNotFound(status)) return status;
    condition.kind = IsDataLoss(status) ? Kind::kDamaged : Kind::kGone;
    condition.what = status.message();
    condition.part = part;
    return condition;
  };
  std::string index;
  const Status index_read =
      Read(dir, FileName(stem, stream::Part::kIndex), [&](std::string_view bytes) {
        index.append(bytes);
        return !seal || static_cast<int64_t>(index.size()) <
                            seal->length[static_cast<int>(stream::Part::kIndex)];
      });
  condition.messages = static_cast<int64_t>(index.size()) / stream::kIndexRecordSize;
  if (!index_read.ok()) return of_file(index_read, stream::Part::kIndex);
  PairCheck check(seal, index);
  if (!check.damage().empty()) {
    condition.part = stream::Part::kIndex;
  } else if (!check.done()) {
    const Status data_read =
        Read(dir, FileName(stem, stream::Part::kData), [&](std::string_view bytes) {
          check.OnData(bytes);
          return !check.done();
        });
    if (!data_read.ok()) return of_file(data_read, stream::Part::kData);
    check.OnEnd();
  }
  if (!check.damage().empty()) {
    condition.kind = Kind::kDamaged;
    condition.what = check.damage();
  } else if (!check.missing().empty()) {
    condition.kind = Kind::kMissing;
    condition.what = check.missing();
  }
  return condition;
}

Status StoreReader::TakeAside(const stream::ShardId& shard, const stream::Stem& stem,
                              stream::Part first) {
  const auto other = first == stream::Part::kData ? stream::Part::kIndex : stream::Part::kData;
  for (const stream::Part part : {first, other}) {
    const std::string name = FileName(stem, part);
    const Status aside = Wait<Status>(
        [&](auto done) { store_->Quarantine(stream::ShardDir(shard), name, std::move(done)); });
    if (!aside.ok() && !IsNotFound(aside)) return aside.WithContext("take " + name + " aside");
  }
  return OkStatus();
}

}  // namespace tailcast::app
