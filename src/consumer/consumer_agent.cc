#include "tailcast/consumer/consumer_agent.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/consumer/cell_sources.h"
#include "tailcast/consumer/start_search.h"

namespace tailcast::consumer {

using stream::PairMetadata;
using stream::Part;
using stream::Stem;

namespace {

FAULT_POINT(kSkipHole, "consumer.skip_hole", "the file after a missing one is read instead");
FAULT_POINT(kJumpDeleted, "consumer.jump_deleted",
            "who stands in a file that is deleted goes on at the floor, and nobody is told");

constexpr Duration kWatchTimeout = Duration::Seconds(1);
constexpr uint64_t kNoWatch = 0;

std::string_view PartName(Part part) { return part == Part::kData ? "data" : "index"; }

}  // namespace

std::string_view ShardStateName(ShardState state) {
  switch (state) {
    case ShardState::kLocating:
      return "locating";
    case ShardState::kWaiting:
      return "waiting";
    case ShardState::kTailing:
      return "tailing";
    case ShardState::kQuiet:
      return "quiet";
    case ShardState::kStuck:
      return "stuck";
    case ShardState::kFailed:
      return "failed";
  }
  return "unknown";
}

// The file that is being read: what is known of it, and where its bytes come from.
struct ConsumerAgent::OpenedFile {
  OpenedFile(const ConsumerAgent& agent, Counters& counters, HeartbeatAge& heartbeats,
             const FilePlace& place)
      : id{agent.shard_, place.stem},
        metadata_keys(MetadataKeys(agent.keys_, place.stem.seq)),
        steps(agent.ports_.steps, id, "consumer", agent.step_name_),
        lengths(agent.options_, counters, heartbeats, place.stem, place.metadata,
                agent.ports_.loop->Now()),
        cell(agent.ports_, id, lengths, agent.options_.cache_timeout, steps) {}
  Scope& scope() { return scope_; }

  const stream::FileId id;
  // The groups of metadata that speak of the file and of the next one: that is one, or two.
  const std::vector<cache::Key> metadata_keys;
  const stream::FileSteps steps;
  LengthsCore lengths;
  CellSources cell;
  // In the order in which they are preferred.
  const std::array<Source*, 2> sources{&cell.cache(), &cell.primary()};
  static_assert(std::tuple_size_v<decltype(sources)> <= kSourcesMax);
  int64_t logged_cache[stream::kParts] = {0, 0};  // lengths, in the log of steps
  int64_t logged_primary[stream::kParts] = {0, 0};
  std::vector<cache::Client::ValueRead> metadata_reads;
  cache::Values metadata;         // that were read last
  std::vector<uint64_t> watches;  // while the doorbell is set: of each of the keys, or kNoWatch
  // Of the fetch under way, of each part, if it reads ahead: up to where, and in which round.
  struct Ahead {
    int64_t to = 0;  // 0: it does not
    int64_t round = 0;
  };
  Ahead ahead[stream::kParts];
  // What is counted if the fetch under way, of each part, is answered by the primary layer.
  int64_t Counters::*fallback[stream::kParts] = {};

 private:
  static std::vector<cache::Key> MetadataKeys(const stream::KeyMaker& keys, int64_t seq) {
    std::vector<cache::Key> groups = {keys.MetadataGroup(seq)};
    if (stream::MetadataGroupOf(seq + 1) != stream::MetadataGroupOf(seq)) {
      groups.push_back(keys.MetadataGroup(seq + 1));
    }
    return groups;
  }
  Scope scope_;
};

ConsumerAgent::ConsumerAgent(const stream::CellPorts& ports, stream::ShardId shard,
                             AgentOptions options, Callback<void()> on_ready)
    : ports_(ports),
      shard_(std::move(shard)),
      options_(options),
      on_ready_(std::move(on_ready)),
      dir_(stream::ShardDir(shard_)),
      keys_(shard_),
      step_name_(ports.steps != nullptr ? ports.steps->NewName() : ""),
      tail_(options_, counters_, shard_),
      timer_(*ports.loop) {
  TAILCAST_CHECK(options.poll > Duration(), "lengths would be read over and over");
}

ConsumerAgent::~ConsumerAgent() { CancelWatch(); }

void ConsumerAgent::Enter(Phase next) {
  const bool drawn = next == Phase::kLocating  ? phase_ == Phase::kNew
                     : next == Phase::kTailing ? phase_ == Phase::kLocating
                     : next == Phase::kFailed
                         ? phase_ == Phase::kLocating || phase_ == Phase::kTailing
                         : false;
  TAILCAST_CHECK(drawn, "no way from one phase to the other");
  phase_ = next;
}

void ConsumerAgent::Start(const StartPoint& start) {
  Enter(Phase::kLocating);
  search_ = std::make_unique<StartSearch>(
      ports_, shard_, start, options_, counters_, timer_,
      [this](Result<FilePlace> place) { OnLocated(std::move(place)); });
  search_->Begin();
}

void ConsumerAgent::OnLocated(Result<FilePlace> place) {
  first_available_ = search_->first_available();
  heartbeats_.OnSeen(ports_.loop->Now(), search_->newest_heartbeat_us());
  Retire(*ports_.loop, std::move(search_));
  if (!place.ok()) {
    Fail(place.status());
    return;
  }
  Enter(Phase::kTailing);
  OpenFile(*place);
}

void ConsumerAgent::Fail(const Status& status) {
  Enter(Phase::kFailed);
  status_ = status.WithContext(shard_.ToString());
  timer_.Cancel();
  CancelWatch();
  if (file_) file_->scope().End();
  SignalReady();
}

void ConsumerAgent::OnDeleted(const Status& why) {
  if (phase_ == Phase::kFailed) return;
  search_.reset();
  Fail(why);
}

void ConsumerAgent::SignalReady() {
  if (!on_ready_ || std::exchange(signalled_, true)) return;
  ports_.loop->Post(scope_.Bind([this] {
    if (signalled_) on_ready_();
  }));
}

// --- Files

void ConsumerAgent::OpenFile(const FilePlace& place) {
  auto opened = std::make_unique<OpenedFile>(*this, counters_, heartbeats_, place);
  opened->lengths.SetPause(pace_.pause());
  if (file_) opened->lengths.Follow(ports_.loop->Now(), file_->lengths);
  CloseFile();
  file_ = std::move(opened);
  if (place.later) file_->lengths.OnLater(*place.later);
  const int64_t chunk_size = file_->lengths.chunk_size();
  std::vector<std::string_view> sources;
  for (const Source* source : file_->sources) sources.push_back(source->name());
  tail_.Open(place, chunk_size, std::move(sources));
  for (Part part : {Part::kData, Part::kIndex}) {
    file_->steps.Write("ConsumerStart", part, {{"at", tail_.at(part)}, {"chunkSize", chunk_size}});
  }
  SetTimer(ports_.loop->Now());
}

// Perhaps inside a callback of the file's own sources.
void ConsumerAgent::CloseFile() {
  timer_.Cancel();
  CancelWatch();
  Retire(*ports_.loop, std::move(file_));
}

void ConsumerAgent::CancelWatch() {
  if (!file_) return;
  for (uint64_t watch : std::exchange(file_->watches, {})) {
    if (watch != kNoWatch) ports_.metadata_cache->CancelWatch(watch);
  }
}

bool ConsumerAgent::RollOver() {
  const bool complete = tail_.Complete();
  const std::optional<Stem> next = complete ? file_->lengths.next() : std::nullopt;
  file_->lengths.WaitForNext(complete && !next);
  std::optional<FilePlace> place = next ? tail_.Follow(*next) : std::nullopt;
  if (!tail_.failure().ok()) {
    Fail(tail_.failure());
    return false;
  }
  if (!place) return true;
  ++counters_.roll_overs;
  place->metadata = file_->lengths.next_metadata();
  place->later = file_->lengths.later();
  OpenFile(*place);
  return false;
}

// --- Lengths

void ConsumerAgent::DoWork() {
  Pace();
  LengthsCore& lengths = file_->lengths;
  const MonotonicTime now = ports_.loop->Now();
  const LengthsCore::Work work = lengths.DoWork(now);
  if (work.watch) Watch();
  if (work.ask_primary) AskPrimary();
  if (work.list) List();
  if (work.read_metadata &&
      ReadMetadata(work.relaxed ? cache::ReadMode::kRelaxed : cache::ReadMode::kConsistent)) {
    return DoWork();  // the next one is due after `poll`, or a pause
  }
  if (lengths.seal()) tail_.SetSeal(*lengths.seal());
  tail_.DoWork(now);
  Advance();
}

void ConsumerAgent::SetTimer(MonotonicTime when) {
  if (timer_.armed() && timer_.when() <= when) return;
  timer_.At(when, file_->scope().Bind([this] { DoWork(); }));
}

void ConsumerAgent::Watch() {
  const std::vector<cache::Key>& keys = file_->metadata_keys;
  file_->watches.resize(keys.size(), kNoWatch);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (file_->watches[i] != kNoWatch) continue;
    file_->watches[i] = ports_.metadata_cache->WatchValue(
        keys[i], kWatchTimeout,
        file_->scope().Bind([this, i](bool watched) { OnDoorbell(i, watched); }));
  }
}

void ConsumerAgent::OnDoorbell(size_t watch, bool watched) {
  std::vector<uint64_t>& watches = file_->watches;
  watches[watch] = kNoWatch;
  const auto none = [](uint64_t id) { return id == kNoWatch; };
  if (watched || std::all_of(watches.begin(), watches.end(), none)) {
    CancelWatch();
    file_->lengths.OnDoorbell(ports_.loop->Now(), watched);
  } else {
    file_->lengths.OnDoorbellHalf(ports_.loop->Now());
  }
  DoWork();
}

void ConsumerAgent::Pace() {
  const MonotonicTime now = ports_.loop->Now();
  if (options_.thread_times == nullptr || !pace_.Due(now)) return;
  if (const auto times = options_.thread_times()) pace_.OnTimes(now, *times);
  file_->lengths.SetPause(pace_.pause());
}

bool ConsumerAgent::ReadMetadata(cache::ReadMode mode) {
  OpenedFile& file = *file_;
  file.metadata_reads.clear();
  for (const cache::Key& key : file.metadata_keys) {
    file.metadata_reads.push_back({.key = key, .mode = mode});
  }
  if (ports_.metadata_cache->TryReadValues(file.metadata_reads, file.metadata)) {
    file.lengths.SetRoundTrips(false);
    OnMetadata(file.metadata);
    return true;
  }
  file.lengths.SetRoundTrips(true);
  ports_.metadata_cache->ReadValues(file.metadata_reads, options_.cache_timeout,
                                    file.scope().Bind([this](const Result<cache::Values>& values) {
                                      if (values.ok()) {
                                        OnMetadata(*values);
                                      } else {
                                        file_->lengths.OnMetadataFailed(ports_.loop->Now());
                                      }
                                      DoWork();
                                    }));
  return false;
}

void ConsumerAgent::OnMetadata(const cache::Values& values) {
  LengthsCore& lengths = file_->lengths;
  const int64_t seq = file_->id.stem.seq;
  const auto decode = [](int64_t of, const cache::ValueAnswer& value) {
    return value.has_value() ? stream::DecodePairMetadata(of, *value) : PairMetadata();
  };
  const int64_t chunk_size = lengths.chunk_size();
  lengths.OnMetadata(ports_.loop->Now(), decode(seq, values.front()),
                     decode(seq + 1, values.back()),
                     values.front().complete && values.back().complete);
  if (lengths.chunk_size() == chunk_size) return;
  file_->cell.OnChunkSize();
  tail_.SetChunkSize(lengths.chunk_size());
}

void ConsumerAgent::AskPrimary() {
  for (Part part : {Part::kData, Part::kIndex}) {
    file_->cell.AskPrimaryLength(
        part, file_->scope().Bind([this, part](const Result<storage::FileSize>& size) {
          if (size.ok()) {
            // In a turn of its own: the other part's length may be here by then.
            if (file_->lengths.OnPrimaryLength(part, size->committed_length)) {
              SetTimer(ports_.loop->Now());
            }
          } else if (IsNotFound(size.status())) {
            file_->lengths.OnAbsent(part);
          } else {
            file_->lengths.OnPrimaryFailed(part, size.status());
            ++counters_.primary_errors;
          }
        }));
  }
}

void ConsumerAgent::List() {
  ports_.store->List(
      dir_, file_->scope().Bind([this](const Result<std::vector<storage::DirEntry>>& entries) {
        OnListed(entries);
      }));
}

void ConsumerAgent::OnListed(const Result<std::vector<storage::DirEntry>>& entries) {
  if (!entries.ok()) {
    file_->lengths.OnListingFailed();
    ++counters_.primary_errors;
    return;
  }
  const auto listing = stream::ShardListing::Parse(*entries);
  if (!listing.ok()) {
    Fail(listing.status());
    return;
  }
  switch (file_->lengths.OnListing(*listing)) {
    case LengthsCore::NextFile::kFound:
      DoWork();
      return;
    case LengthsCore::NextFile::kNotYet:
      return;
    case LengthsCore::NextFile::kHole:
      if (kSkipHole.planted() && tail_.Complete()) {
        OpenFile({.stem = listing->pairs().upper_bound(file_->id.stem.seq)->second.stem});
      }
      return;
    case LengthsCore::NextFile::kDeleted:
      // What was read before is given first; then the listing is asked again.
      if (tail_.ready()) return;
      if (kJumpDeleted.planted() && !listing->pairs().empty()) {
        OpenFile({.stem = listing->pairs().begin()->second.stem});
      } else {
        FailDeleted(*listing);
      }
      return;
  }
}

void ConsumerAgent::FailDeleted(const stream::ShardListing& listing) {
  const std::optional<Stem> next = file_->lengths.next();
  const stream::ListedPair* listed = listing.Find(listing.floor());
  const Stem* first = listed != nullptr                      ? &listed->stem
                      : next && next->seq == listing.floor() ? &*next
                                                             : nullptr;
  if (first != nullptr) {
    first_available_ = stream::Position{shard_.stream.incarnation, shard_.shard,
                                        first->start_number, first->start_byte};
  }
  Fail(OutOfRangeError("file " + std::to_string(file_->id.stem.seq) +
                       " is not kept here any more; the first available position is " +
                       (first_available_ ? first_available_->ToString() : "not known yet")));
}

// --- Bytes and messages

void ConsumerAgent::Advance() {
  // Each fetch that is answered at once may make room for the next; a turn is bounded all the same.
  for (int i = 0; i < 4; ++i) {
    const bool index = Fetch(Part::kIndex);
    const bool data = Fetch(Part::kData);
    if (!index && !data) break;
  }
  if (!RollOver()) return;
  if (tail_.ready()) SignalReady();
  SetTimer(std::max(ports_.loop->Now(), std::min(file_->lengths.NextWork(), tail_.NextWork())));
}

// True if bytes arrived inside the call.
bool ConsumerAgent::Fetch(Part part) {
  OpenedFile& file = *file_;
  std::array<SourceLengths, kSourcesMax> lengths;
  for (size_t i = 0; i < file.sources.size(); ++i) lengths[i] = file.sources[i]->lengths(part);
  const MonotonicTime now = ports_.loop->Now();
  auto fetch = tail_.NextFetch(now, part, std::span(lengths).first(file.sources.size()));
  if (!fetch) {
    const auto asked = [](const SourceLengths& source) { return source.perhaps > 0; };
    if (!tail_.fetching(part) && std::any_of(lengths.begin(), lengths.end(), asked)) {
      file.lengths.OnAhead(now, file.lengths.ahead_round(), part, 0, false, tail_.ready());
    }
    return false;
  }
  if (file.steps.on()) LogLengths(part);
  Source& source = *file.sources[fetch->source];
  file.fallback[static_cast<int>(part)] =
      fetch->distrusted ? &Counters::fallback_corrupt : source.fallback();
  OpenedFile::Ahead& ahead = file.ahead[static_cast<int>(part)];
  ahead = {};
  if (fetch->request.ahead) {
    ahead = {fetch->request.to, file.lengths.ahead_round()};
  } else {
    file.lengths.OnKnownAsked(now);
  }
  const auto result = source.Read(part, std::move(fetch->request),
                                  file.scope().Bind([this, part](const stream::RangeResult& late) {
                                    OnFetched(part, late);
                                    DoWork();
                                  }));
  return result && OnFetched(part, *result);
}

bool ConsumerAgent::OnFetched(Part part, const stream::RangeResult& result) {
  if (result.primary_reads > 0) ++(counters_.*file_->fallback[static_cast<int>(part)]);
  const MonotonicTime now = ports_.loop->Now();
  const bool progress = tail_.OnFetched(now, part, result);
  if (const OpenedFile::Ahead ahead = file_->ahead[static_cast<int>(part)]; ahead.to > 0) {
    file_->lengths.OnAhead(now, ahead.round, part, progress ? result.end : 0,
                           result.end >= ahead.to, tail_.ready());
  }
  if (progress) {
    file_->lengths.OnProgress(now);
  } else if (IsNotFound(result.primary_error)) {
    file_->lengths.OnAbsent(part);
  }
  return progress;
}

// spec DuelingWriters: PollCache, PollPrimary. The largest lengths that were seen, when they are
// used.
void ConsumerAgent::LogLengths(Part part) {
  const int p = static_cast<int>(part);
  const PairMetadata& seen = file_->lengths.metadata();
  if (seen.cache_length[p] > file_->logged_cache[p]) {
    file_->logged_cache[p] = seen.cache_length[p];
    file_->steps.Write("PollCache", part, {{"len", seen.cache_length[p]}});
  }
  if (seen.primary_length[p] > file_->logged_primary[p]) {
    file_->logged_primary[p] = seen.primary_length[p];
    file_->steps.Write("PollPrimary", part, {{"len", seen.primary_length[p]}});
  }
}

bool ConsumerAgent::ready() const {
  return phase_ == Phase::kFailed || (phase_ == Phase::kTailing && tail_.ready());
}

size_t ConsumerAgent::Take(std::vector<Message>& out, int64_t bytes_max) {
  signalled_ = false;
  if (phase_ != Phase::kTailing) return 0;
  const int64_t before[stream::kParts] = {tail_.at(Part::kData), tail_.at(Part::kIndex)};
  const size_t count = tail_.Take(out, bytes_max);
  for (Part part : {Part::kData, Part::kIndex}) {
    if (const int64_t at = tail_.at(part); at != before[static_cast<int>(part)]) {
      file_->steps.Write("Deliver", part, {{"to", at}});
    }
  }
  if (tail_.failure().ok()) {
    SetTimer(ports_.loop->Now());
  } else {
    Fail(tail_.failure());
  }
  return count;
}

void ConsumerAgent::Release() {
  tail_.Release();
  if (phase_ == Phase::kTailing) Advance();
}

// --- What people ask

std::optional<stream::Position> ConsumerAgent::position() const {
  if (search_) return search_->begins();
  if (!file_) return std::nullopt;
  return tail_.position();
}

int64_t ConsumerAgent::lag_bytes() const {
  if (!file_) return 0;
  return std::max<int64_t>(0, file_->lengths.known_end(Part::kData) - tail_.at(Part::kData));
}

const Status& ConsumerAgent::trouble() const {
  return search_ ? search_->trouble() : tail_.trouble();
}

Status ConsumerAgent::missing() const {
  if (search_ && search_->hole()) {
    return UnavailableError("its first files are not in this cell, later ones are");
  }
  if (!file_) return OkStatus();
  const LengthsCore& lengths = file_->lengths;
  Status missing = lengths.Missing();
  // Data are there before their index records, wherever nothing was lost, but may be read after
  // them.
  if (missing.ok() && lag_bytes() == 0 && !tail_.fetching(Part::kData) &&
      tail_.at(Part::kIndex) < lengths.known_end(Part::kIndex)) {
    missing = UnavailableError(stream::FileName(file_->id.stem, Part::kData) + " has " +
                               std::to_string(lengths.known_end(Part::kData)) +
                               " bytes in this cell, and its index has more messages");
  }
  return missing;
}

bool ConsumerAgent::end_is_known() const { return !file_ || file_->lengths.EndIsKnown(); }

int64_t ConsumerAgent::file_seq() const { return file_ ? file_->id.stem.seq : 0; }

std::optional<int64_t> ConsumerAgent::begins_beyond() const {
  if (!file_) return std::nullopt;
  const int64_t index = file_->lengths.known_end(Part::kIndex);
  if (tail_.at(Part::kIndex) <= index) return std::nullopt;
  return file_->id.stem.start_number + index / stream::kIndexRecordSize;
}

WallTime ConsumerAgent::as_of() const { return file_ ? file_->lengths.as_of() : WallTime(); }

bool ConsumerAgent::next_is_known() const { return file_ && file_->lengths.next(); }

ShardState ConsumerAgent::state() const {
  switch (phase_) {
    case Phase::kNew:
      return ShardState::kLocating;
    case Phase::kLocating:
      return search_->waiting() ? ShardState::kWaiting : ShardState::kLocating;
    case Phase::kFailed:
      return ShardState::kFailed;
    case Phase::kTailing:
      break;
  }
  if (lag_bytes() > 0) return ShardState::kTailing;
  if (file_->lengths.waiting_for_next()) return ShardState::kWaiting;
  return file_->lengths.Stuck(ports_.loop->Now()) ? ShardState::kStuck : ShardState::kQuiet;
}

std::string ConsumerAgent::DebugString() const {
  std::string text = shard_.ToString() + " " + std::string(ShardStateName(state()));
  if (!file_) return text;
  text += " file " + std::to_string(file_->id.stem.seq);
  for (Part part : {Part::kData, Part::kIndex}) {
    text += "; " + std::string(PartName(part)) + " given " + std::to_string(tail_.at(part)) +
            " read " + std::to_string(tail_.end(part));
    if (tail_.fetching(part)) text += " fetching";
  }
  text += "; " + file_->lengths.DebugString();
  if (timer_.armed()) {
    text += "; wakes in " + std::to_string((timer_.when() - ports_.loop->Now()).micros()) + " us";
  }
  return text;
}

}  // namespace tailcast::consumer
