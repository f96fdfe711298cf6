#include "tailcast/consumer/start_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tailcast/stream/chunk_key.h"

namespace tailcast::consumer {

using stream::kIndexRecordSize;

namespace {

constexpr Duration kPauseMax = Duration::Millis(200);
constexpr Duration kMetadataTimeout = Duration::Seconds(1);

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

StartSearch::StartSearch(const stream::CellPorts& ports, const stream::ShardId& shard,
                         const StartPoint& start, const AgentOptions& options, Counters& counters,
                         Timer& timer, UniqueFunction<void(Result<FilePlace>)> done)
    : ports_(ports),
      shard_(shard),
      options_(options),
      counters_(counters),
      timer_(timer),
      done_(std::move(done)),
      core_(start, shard, options.chunk_size) {}

void StartSearch::Begin() {
  troubled_ = false;
  Do(core_.Begin());
}

void StartSearch::Do(StartSearchCore::Step step) {
  std::visit(Overloaded{
                 [this](StartSearchCore::List) { List(); },
                 [this](const StartSearchCore::ReadMetadata& read) { ReadMetadata(read.seq); },
                 [this](const StartSearchCore::AskIndexLength& ask) { AskIndexLength(ask); },
                 [this](const StartSearchCore::ReadRecord& read) { ReadRecord(read); },
                 [this](StartSearchCore::Wait wait) {
                   if (wait.undecided && !troubled_) {
                     Trouble(UnavailableError("too few of the cell's metadata caches answer"));
                   }
                   counters_.hole_waits += wait.hole;
                   hole_ = wait.hole;
                   Wait(!wait.undecided);
                 },
                 [this](const FilePlace& place) { done_(place); },
                 [this](Status& error) { done_(std::move(error)); },
             },
             step);
}

void StartSearch::List() {
  ++counters_.listings;
  ports_.store->List(stream::ShardDir(shard_),
                     scope_.Bind([this](const Result<std::vector<storage::DirEntry>>& entries) {
                       if (entries.ok()) {
                         Do(core_.OnListing(stream::ShardListing::Parse(*entries)));
                       } else {
                         ++counters_.primary_errors;
                         Trouble(entries.status());
                         Wait(false);
                       }
                     }));
}

void StartSearch::ReadMetadata(int64_t seq) {
  ++counters_.polls;
  const stream::KeyMaker keys(shard_);
  ports_.metadata_cache->ReadValues(
      {{keys.MetadataGroup(seq)}, {keys.MetadataGroup(seq + stream::kPairsPerGroup)}},
      kMetadataTimeout, scope_.Bind([this](const Result<cache::Values>& values) {
        if (!values.ok()) ++counters_.poll_failures;
        Do(core_.OnMetadata(values.ok() ? std::span(*values)
                                        : std::span<const cache::ValueAnswer>()));
      }));
}

stream::RangeReader& StartSearch::ReaderOf(const stream::Stem& stem, int64_t chunk_size) {
  if (reader_ == nullptr || reader_stem_ != stem) {
    // Perhaps inside one of its callbacks.
    Retire(*ports_.loop, std::move(reader_));
    reader_stem_ = stem;
    reader_ = std::make_unique<stream::RangeReader>(
        ports_, stream::FileId{shard_, stem}, stream::Part::kIndex, chunk_size,
        stream::RangeReader::Options{.cache_timeout = options_.cache_timeout});
  }
  return *reader_;
}

void StartSearch::AskIndexLength(const StartSearchCore::AskIndexLength& ask) {
  ++counters_.primary_size_polls;
  ReaderOf(ask.stem, ask.chunk_size)
      .PrimarySize(scope_.Bind([this](const Result<storage::FileSize>& size) {
        if (size.ok()) {
          Do(core_.OnIndexLength(size->committed_length));
          return;
        }
        if (!IsNotFound(size.status())) {
          ++counters_.primary_errors;
          Trouble(size.status());
        }
        Do(core_.OnIndexLength(size.status()));
      }));
}

void StartSearch::ReadRecord(const StartSearchCore::ReadRecord& read) {
  counters_.fallback_corrupt += read.distrusted;
  stream::RangeReader& reader = ReaderOf(read.stem, read.chunk_size);
  stream::RangeRequest request;
  request.from = read.record * kIndexRecordSize;
  request.to = request.from + kIndexRecordSize;
  request.cache_limit = read.cache_limit;
  request.primary_limit = read.primary_limit;
  const int64_t base = reader.ChunkStart(request.from);
  // A chunk that spans records may end inside one: room for whole records is enough.
  request.room = request.to - base;
  auto bytes = std::make_shared<std::string>(static_cast<size_t>(request.room), '\0');
  request.destination = bytes->data();
  request.owner = bytes;
  auto handle = [this, bytes, at = request.from - base, to = request.to, seq = read.stem.seq,
                 record = read.record](const stream::RangeResult& result) {
    if (result.end < to) {
      ++counters_.short_reads;
      Trouble(result.primary_error.ok() ? UnavailableError("it is in neither layer now")
                                        : result.primary_error);
      trouble_ = trouble_.WithContext("index record " + std::to_string(record) + " of file " +
                                      std::to_string(seq));
    }
    Do(core_.OnRecord(result.end < to ? nullptr : bytes->data() + at));
  };
  if (const auto result = reader.Read(request, scope_.Bind(handle))) {
    // A long search is many turns of the loop.
    ports_.loop->Post(scope_.Bind([handle, result = *result] { handle(result); }));
  }
}

void StartSearch::Trouble(const Status& why) {
  trouble_ = why;
  troubled_ = true;
}

void StartSearch::Wait(bool known) {
  waiting_ = known;
  if (!troubled_) trouble_ = OkStatus();
  Retire(*ports_.loop, std::move(reader_));
  timer_.After(std::min(options_.primary_poll, kPauseMax), scope_.Bind([this] { Begin(); }));
}

}  // namespace tailcast::consumer
