#include "tailcast/scheduler/file_check.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr size_t kNamedMax = 10;  // files in one line of the log

const char* KindText(v1::LackingFile::Kind kind) {
  switch (kind) {
    case v1::LackingFile::DAMAGED:
      return " (damaged)";
    case v1::LackingFile::INCOMPLETE:
      return " (incomplete)";
    default:
      return "";
  }
}

std::string FilesText(const std::vector<MissingFiles::Found>& found) {
  std::string text = found.size() == 1 ? "file " : "files ";
  for (size_t i = 0; i < std::min(found.size(), kNamedMax); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(found[i].seq) + KindText(found[i].kind);
  }
  if (found.size() > kNamedMax) {
    text += " and " + std::to_string(found.size() - kNamedMax) + " more";
  }
  return text;
}

}  // namespace

FileCheck::FileCheck(EventLoop& loop, DiskProgress& disk, const cell::RegistryCore& registry,
                     MetricRegistry& metrics, FileCheckOptions options, Show show)
    : disk_(disk),
      registry_(registry),
      options_(std::move(options)),
      show_(std::move(show)),
      lacking_(metrics.GetGauge("tailcast_scheduler_lacking_files",
                                "Message files that the cell should have and lacks: deleted, "
                                "damaged, or not copied yet.")),
      missing_((Raw(registry.scheduler_incarnation()) << 32) + 1),
      show_timer_(loop) {}

bool FileCheck::Watches(const stream::ShardId& shard) const {
  const v1::StreamConfig* stream = registry_.catalogue().FindStream(shard.stream.name);
  return stream != nullptr && stream::IdOf(*stream) == shard.stream &&
         cell::NamesCell(*stream, options_.cell);
}

void FileCheck::OnNotice(const stream::ShardId& shard, int64_t seq) {
  if (!Watches(shard)) return;
  missing_.OnNotice(shard, seq);
  ShowSoon();
}

void FileCheck::OnListed(const stream::ShardId& shard, const DiskProgress::Listing& listing) {
  if (!Watches(shard)) return missing_.OnStreamRemoved(shard.stream);
  const int64_t floor = std::max(listing.floor, registry_.catalogue().WrittenFloor(shard));
  Report(shard, missing_.OnListed(shard, floor, listing.stems));
  ShowSoon();
}

void FileCheck::OnStreamRemoved(const stream::StreamId& stream) {
  missing_.OnStreamRemoved(stream);
  ShowSoon();
}

// --- looks ---

std::vector<stream::ShardId> FileCheck::Shards() const {
  std::vector<stream::ShardId> shards;
  for (const v1::StreamConfig& stream : registry_.view().streams()) {
    if (!cell::NamesCell(stream, options_.cell)) continue;
    for (int32_t s = 0; s < stream.shards(); ++s) shards.push_back({stream::IdOf(stream), s});
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

void FileCheck::Look() {
  ShowNow();
  if (!looking_) LookAt(Shards().size(), options_.files_per_round);
}

void FileCheck::LookAt(size_t shards_left, int files_left) {
  const std::vector<stream::ShardId> shards = Shards();
  looking_ = shards_left > 0 && files_left > 0 && !shards.empty();
  if (!looking_) return;
  auto shard = std::lower_bound(shards.begin(), shards.end(), next_shard_);
  if (shard == shards.end()) shard = shards.begin();
  if (*shard != next_shard_) next_seq_ = 1;
  next_shard_ = *shard;
  // One more: its successor tells a file's length.
  disk_.Read(next_shard_, registry_.catalogue().WrittenFloor(next_shard_), next_seq_,
             files_left + 1,
             scope_.Bind([this, shards_left, files_left](const Result<ShardProgress>& progress) {
               if (progress.ok()) return OnLooked(shards_left, files_left, *progress);
               looking_ = false;  // for now; and another shard may be better off
               next_seq_ = 1;
               ++next_shard_.shard;
             }));
}

void FileCheck::OnLooked(size_t shards_left, int files_left, const ShardProgress& progress) {
  if (Watches(next_shard_))
    Report(next_shard_, missing_.OnLooked(next_shard_, next_seq_, progress));
  ShowSoon();
  const auto seen = static_cast<int>(progress.listed.size());
  if (progress.early || seen > files_left) {  // early: the disk fails, or has much to do
    next_seq_ = progress.early ? progress.covered_to + 1 : progress.listed.back().seq;
    looking_ = false;
    return;
  }
  next_seq_ = 1;
  ++next_shard_.shard;  // or the next stream's first
  LookAt(shards_left - 1, files_left - seen);
}

// --- what was found ---

void FileCheck::Report(const stream::ShardId& shard,
                       const std::vector<MissingFiles::Found>& found) {
  if (found.empty()) return;
  for (const MissingFiles::Found& file : found) disk_.OnLacking(shard, file.seq);
  const v1::StreamConfig* stream = registry_.catalogue().FindStream(shard.stream.name);
  const std::string what =
      "cell " + options_.cell + " lacks " + FilesText(found) + " of " + shard.ToString();
  if (stream != nullptr && stream->source() == options_.cell) {
    kLog.Error(what,
               ": they were deleted or damaged here, at the stream's source, and no cell is "
               "above it to copy them from; consumers here wait for them. Put them back from a "
               "backup or from another cell's folder, or delete the stream");
  } else if (std::any_of(found.begin(), found.end(), [](const auto& f) { return f.was_here; })) {
    kLog.Warn(what, "; the cell above copies what it lacks");
  } else {
    kLog.Info(what,
              ", not copied yet or deleted while no scheduler looked; the cell above copies what "
              "it lacks");
  }
}

void FileCheck::ShowSoon() {
  lacking_.Set(missing_.total());
  if (!missing_.NewsToShow() || show_timer_.armed()) return;
  show_timer_.After(options_.show_interval, scope_.Bind([this] { ShowNow(); }));
}

void FileCheck::ShowNow() {
  if (!missing_.changed()) return;
  const int64_t total = missing_.total();
  show_(missing_.Show(), total);
}

}  // namespace tailcast::scheduler
