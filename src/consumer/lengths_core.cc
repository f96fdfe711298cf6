#include "tailcast/consumer/lengths_core.h"

#include <utility>

namespace tailcast::consumer {

using stream::PairMetadata;
using stream::Part;
using stream::Stem;

namespace {

// Notifications without news (a neighbour's bucket, a replica that lags) are not followed at any
// rate.
constexpr Duration kIdleDoorbellPause = Duration::Millis(1);

int Index(Part part) { return static_cast<int>(part); }

}  // namespace

LengthsCore::LengthsCore(const AgentOptions& options, Counters& counters, HeartbeatAge& heartbeats,
                         const Stem& stem, const PairMetadata& known, MonotonicTime now)
    : options_(options),
      counters_(counters),
      heartbeats_(heartbeats),
      stem_(stem),
      chunk_size_(known.chunk_size > 0 ? known.chunk_size
                                       : stream::ChunkSizeOf(stem, options.chunk_size)),
      metadata_(known),
      delayed_{DelayedReadCore(options.delay_max), DelayedReadCore(options.delay_max)},
      next_poll_(now),
      next_primary_poll_(now + options.primary_poll),
      next_listing_(now),
      last_progress_(now),
      as_of_moved_(now) {
  heartbeats_.OnSeen(now, known.heartbeat_us);
  LearnSeal();
}

void LengthsCore::Follow(MonotonicTime now, const LengthsCore& before) {
  round_trips_ = before.round_trips_;
  if (before.seal_) {
    end_may_be_ = before.seal_->length[0] + before.seal_->length[1] - before.chunk_size_;
  }
  if (!round_trips_ || !options_.doorbell || pause_ == Duration()) return;
  if (!metadata_.known() || seal_) return;
  knowledge_ = Knowledge::kKnown;
  bytes_came_ = true;
  usual_ = before.usual_;
  last_poll_ = before.last_poll_;
  round_at_ = now;
  if (Reached() == 0) next_poll_ = now + pause_;
}

void LengthsCore::EndPoll(MonotonicTime now) {
  if (std::exchange(poll_, Poll::kIdle) == Poll::kAgain) next_poll_ = now;
}

void LengthsCore::OnMetadata(MonotonicTime now, const PairMetadata& pair, const PairMetadata& next,
                             bool complete) {
  EndPoll(now);
  poll_was_news_ = false;
  const int64_t bytes_before = CacheBytes();
  const WallTime as_of_before = as_of();
  const int64_t beat_before = metadata_.heartbeat_us;
  // A value that was mixed up speaks of another file. Lengths are hints: do without.
  const bool foreign = pair.known() && stream::StemOf(stem_.seq, pair) != stem_;
  if (pair.known() && !foreign) {
    knowledge_ = Knowledge::kKnown;
    const PairMetadata before = std::exchange(metadata_, stream::Merge(metadata_, pair));
    poll_was_news_ = metadata_ != before;
    if (before.chunk_size == 0 && chunk_size_known()) chunk_size_ = metadata_.chunk_size;
  } else {
    NobodyKnows(now);
    ++counters_.metadata_unknown;
  }
  if (next.known() && !foreign) {
    const PairMetadata before = std::exchange(next_metadata_, stream::Merge(next_metadata_, next));
    poll_was_news_ = poll_was_news_ || next_metadata_ != before;
  }
  bytes_came_ = CacheBytes() > bytes_before;
  LearnSeal();
  heartbeats_.OnSeen(now, as_of().micros());
  if (as_of() > as_of_before) as_of_moved_ = now;
  const bool comparable = std::exchange(was_complete_, complete) && complete;
  if (comparable && beat_before > 0 && metadata_.heartbeat_us > beat_before) {
    beats_ = std::min(beats_ + 1, kBeatsOfLife);
  }
  if (Settled()) {
    next_poll_ = std::max(next_poll_, now + options_.primary_poll);
    return;
  }
  if (!options_.doorbell || doorbell_ == Doorbell::kSet) return;
  if (ahead_.asking()) {  // the end of the round says when to go on
    ahead_.OnLengths();
    next_poll_ = now + options_.cache_timeout;
    return;
  }
  if (poll_was_news_ && pause_ > Duration()) {
    next_poll_ = now + pause_;
  } else {
    doorbell_ = Doorbell::kWanted;
  }
}

void LengthsCore::OnMetadataFailed(MonotonicTime now) {
  EndPoll(now);
  ++counters_.poll_failures;
  if (knowledge_ == Knowledge::kNotAsked) NobodyKnows(now);
}

// Who catches up over files of which the cache knows nothing (any more) asks the primary layer for
// each at once: a poll's interval for each file may be longer than they took to write.
void LengthsCore::NobodyKnows(MonotonicTime now) {
  if (knowledge_ == Knowledge::kNotAsked) next_primary_poll_ = now;
  knowledge_ = Knowledge::kUnknown;
}

void LengthsCore::OnDoorbell(MonotonicTime now, bool watched) {
  doorbell_ = Doorbell::kOff;
  if (!watched) {
    ++counters_.refused_watches;
    next_poll_ = now + options_.poll;
    return;
  }
  ++counters_.notifications;
  const Duration pause = poll_was_news_ ? options_.doorbell_pause
                                        : std::max(options_.doorbell_pause, kIdleDoorbellPause);
  next_poll_ = std::max(now, last_poll_ + pause);
}

void LengthsCore::OnDoorbellHalf(MonotonicTime now) {
  doorbell_ = Doorbell::kHalf;
  ++counters_.refused_watches;
  next_poll_ = now + options_.poll;
}

bool LengthsCore::OnPrimaryLength(Part part, int64_t length) {
  primary_[Index(part)].answer = PrimaryAnswer::kKnown;
  int64_t& known = metadata_.primary_length[Index(part)];
  if (length <= known) return false;
  known = length;
  return true;
}

void LengthsCore::OnPrimaryFailed(Part part, const Status& status) {
  if (IsDataLoss(status)) primary_[Index(part)] = {PrimaryAnswer::kDamaged, status};
}

LengthsCore::NextFile LengthsCore::OnListing(const stream::ShardListing& listing) {
  listing_ = false;
  listed_ = true;
  hole_ = false;
  const int64_t seq = stem_.seq;
  if (listing.floor() > seq + 1 ||
      (listing.floor() > seq && (!seal_ || OneIs(PrimaryAnswer::kAbsent)))) {
    return NextFile::kDeleted;
  }
  if (const stream::ListedPair* next = listing.Find(seq + 1)) {
    next_listed_ = next->stem;
    if (const auto later = listing.pairs().upper_bound(seq + 1); later != listing.pairs().end()) {
      later_listed_ = later->second.stem;
    }
    LearnSeal();
    return NextFile::kFound;
  }
  if (listing.last() <= seq) return NextFile::kNotYet;
  ++counters_.hole_waits;
  hole_ = true;
  return NextFile::kHole;
}

void LengthsCore::OnLater(const Stem& later) {
  if (later.seq == stem_.seq + 1) {
    next_listed_ = later;
    LearnSeal();
  } else {
    hole_ = true;
  }
}

LengthsCore::Work LengthsCore::DoWork(MonotonicTime now) {
  Work work;
  if (doorbell_ == Doorbell::kWanted) {
    doorbell_ = Doorbell::kSet;
    work.watch = true;
  }
  if (now >= next_poll_) {
    next_poll_ = now + options_.poll;
    const bool ahead = MayReadAhead();
    const bool alone = ahead && now < NextLengths() && !EndIsNear(now);
    if (ahead) {
      ++counters_.rounds_ahead;
      ahead_.Begin(alone);
      round_at_ = now;
    }
    if (alone) {
      next_poll_ = now + options_.cache_timeout;  // without an answer
    } else if (poll_ == Poll::kIdle) {
      poll_ = Poll::kUnderWay;
      last_poll_ = now;
      ++counters_.polls;
      work.read_metadata = true;
      work.relaxed = pause_ > Duration() && std::exchange(bytes_came_, false);
      lengths_next_ = false;
    } else {
      poll_ = Poll::kAgain;
    }
  }
  if (now >= next_primary_poll_) {
    next_primary_poll_ = now + options_.primary_poll;
    if (PrimaryIsAsked(now)) {
      ++counters_.primary_size_polls;
      work.ask_primary = true;
      // The producer's side says nothing: has it gone on in another file?
      const bool silent = heartbeats_.Over(now, metadata_.heartbeat_us, options_.stuck_after);
      const bool unsure = !EndIsKnown() && now - last_progress_ >= options_.primary_poll * 3;
      if (!seal_ && (!metadata_known() || silent || unsure)) {
        work.list = List(now);
      }
    }
    if (OneIs(PrimaryAnswer::kAbsent) && List(now)) work.list = true;
  }
  if (waiting_for_next_ && now >= next_listing_ && List(now)) work.list = true;
  AllowPrimary(now);
  return work;
}

// What a cache has may be long out of date, unless the producer's side is seen to write to it; a
// copy that begins anew has nothing, and later files may be there. Nobody may take that for the
// stream's end.
bool LengthsCore::EndIsKnown() const {
  if (next() || hole_) return true;
  if (CacheIsAlive() && known_end(Part::kIndex) > 0) return true;
  return listed_ && (seal_ || !OneIs(PrimaryAnswer::kNotAsked));
}

bool LengthsCore::MayReadAhead() const {
  return options_.doorbell && pause_ > Duration() && round_trips_ && bytes_came_ &&
         !lengths_next_ && metadata_known() && chunk_size_known() && !seal_ && !ahead_.asking();
}

void LengthsCore::OnAhead(MonotonicTime now, int64_t round, Part part, int64_t end, bool more,
                          bool ready) {
  const AheadCore::Outcome outcome = ahead_.OnAnswer(round, part, end, more, ready);
  if (end > 0) bytes_came_ = true;
  if (outcome == AheadCore::Outcome::kNone) return;
  const bool is_short = outcome == AheadCore::Outcome::kBytes && CameShort(now);
  if (!ahead_.alone()) return;  // lengths, which are read as well, say when to go on
  switch (outcome) {
    case AheadCore::Outcome::kNone:
      break;
    case AheadCore::Outcome::kBytes:
      lengths_next_ = is_short;
      next_poll_ = lengths_next_ ? now : now + pause_;
      break;
    case AheadCore::Outcome::kUneven:
      next_poll_ = now + std::min(pause_, ahead_.uneven_pause());
      break;
    case AheadCore::Outcome::kInVain:
      lengths_next_ = true;
      next_poll_ = now;
      break;
  }
}

void LengthsCore::OnKnownAsked(MonotonicTime now) {
  if (!ahead_.asking()) return;
  ahead_.Stop();
  if (ahead_.alone()) next_poll_ = now + pause_;
}

// The answer comes as long after now as that of the last round did after its begin.
bool LengthsCore::EndIsNear(MonotonicTime now) const {
  const Duration elapsed = std::min(now - round_at_, Duration::Seconds(1));
  const int64_t coming = usual_ * elapsed.micros() / 1'000'000 * 5 / 4;
  return Reached() < end_may_be_ && Reached() + coming >= end_may_be_;
}

bool LengthsCore::CameShort(MonotonicTime now) {
  const Duration elapsed = now - came_at_;
  if (elapsed <= Duration() || elapsed < pause_ / 2) return false;
  const int64_t end = Reached(), begin = std::exchange(came_to_, end);
  const bool first = std::exchange(came_at_, now) == MonotonicTime();
  if (first) return false;
  const int64_t rate = (end - begin) * 1'000'000 / elapsed.micros();
  const bool to_end = begin < end_may_be_ && end >= end_may_be_;
  const bool is_short = rate < usual_ / 2 || to_end;
  usual_ += (rate - usual_) / (usual_ == 0 ? 1 : 4);
  return is_short;
}

// Neither while bytes come in nor once all of them are known to be there.
bool LengthsCore::PrimaryIsAsked(MonotonicTime now) const {
  const bool moving = now - last_progress_ < options_.primary_poll;
  if (moving && metadata_known()) return false;
  return !seal_ || PrimaryLimit(Part::kData) != seal_->length[0] ||
         PrimaryLimit(Part::kIndex) != seal_->length[1];
}

bool LengthsCore::List(MonotonicTime now) {
  next_listing_ = now + options_.primary_poll;
  if (listing_) return false;
  listing_ = true;
  ++counters_.listings;
  return true;
}

void LengthsCore::LearnSeal() {
  if (seal_) return;
  if (metadata_.sealed()) {
    seal_ = stream::Seal{{*metadata_.seal[0], *metadata_.seal[1]}};
  } else if (const auto next_stem = next()) {
    seal_ = stream::SealBetween(stem_, *next_stem);
  }
  if (seal_) ahead_.Stop();
}

// Algorithm 1: is the cache late?
void LengthsCore::AllowPrimary(MonotonicTime now) {
  // Of a file that was closed longer ago than a cache may be late, it will not catch up any more:
  // who reads many such files does not wait for it in each. Of one that is whole in the primary
  // layer, and of which no heartbeat is known, the cache has lost what it had.
  const bool over =
      seal_.has_value() && (metadata_.heartbeat_us > 0
                                ? heartbeats_.Over(now, metadata_.heartbeat_us, options_.delay_max)
                                : PrimaryLimit(Part::kData) == seal_->length[0] &&
                                      PrimaryLimit(Part::kIndex) == seal_->length[1]);
  for (Part part : {Part::kData, Part::kIndex}) {
    const int p = Index(part);
    const int64_t primary = PrimaryLimit(part);
    if (!chunk_size_known() || knowledge_ == Knowledge::kUnknown ||
        (over && CacheLimit(part) < primary)) {
      // Nobody knows what the cache has, or it has all that it will have. Nothing to wait for.
      delayed_[p].Clear();
      allowed_[p] = std::max(allowed_[p], primary);
    } else if (delayed_[p].OnSizes(now, CacheLimit(part), primary) == DelayedRead::kDelayed) {
      allowed_[p] = std::max(allowed_[p], primary);
    }
  }
}

MonotonicTime LengthsCore::NextWork() const {
  MonotonicTime next = next_primary_poll_;
  // With the doorbell set, polls are what its time-out does.
  if (doorbell_ != Doorbell::kSet && poll_ == Poll::kIdle) next = std::min(next, next_poll_);
  if (waiting_for_next_) next = std::min(next, next_listing_);
  for (const DelayedReadCore& delayed : delayed_) next = std::min(next, delayed.Deadline());
  return next;
}

std::optional<Stem> LengthsCore::next() const {
  if (next_listed_) return next_listed_;
  if (!next_metadata_.known()) return std::nullopt;
  return stream::StemOf(stem_.seq + 1, next_metadata_);
}

int64_t LengthsCore::Sealed(int64_t length, Part part) const {
  return seal_ ? std::min(length, seal_->length[Index(part)]) : length;
}

int64_t LengthsCore::CacheLimit(Part part) const {
  return Sealed(std::max(metadata_.cache_length[Index(part)], ahead_.end(part)), part);
}

int64_t LengthsCore::PrimaryLimit(Part part) const {
  return Sealed(metadata_.primary_length[Index(part)], part);
}

bool LengthsCore::Settled() const {
  const auto whole = [&](Part part) {
    const int64_t length = seal_->length[Index(part)];
    return CacheLimit(part) == length && PrimaryLimit(part) == length;
  };
  return next() && seal_ && whole(Part::kData) && whole(Part::kIndex);
}

bool LengthsCore::CacheHasAll() const {
  return CacheIsAlive() ||
         (metadata_known() && seal_ && CacheLimit(Part::kData) >= seal_->length[0] &&
          CacheLimit(Part::kIndex) >= seal_->length[1]);
}

// The first that applies, of what is surest:
//
//   a seal that is not reached      the file ends there
//   a file that is damaged          its own records say so, and the cache does not say all there is
//   one that begins anew            it was damaged, and has nothing now
//   half a pair                     the other half has something
//   one that is gone                it had something, nothing comes after it, and the cache, too,
//                                   may be old
//   a hole                          later files are there
Status LengthsCore::Missing() const {
  constexpr Part kBoth[] = {Part::kData, Part::kIndex};
  for (const Part part : kBoth) {
    const int64_t sealed = seal_ ? seal_->length[Index(part)] : 0;
    if (known_end(part) >= sealed) continue;
    return UnavailableError(stream::FileName(stem_, part) + " ends at byte " +
                            std::to_string(sealed) + ", and only " +
                            std::to_string(known_end(part)) + " are in this cell");
  }
  for (const Primary& part : primary_) {
    if (part.answer == PrimaryAnswer::kDamaged && !CacheHasAll()) return part.damage;
  }
  const bool was_damaged = !primary_[0].damage.ok() || !primary_[1].damage.ok();
  if (was_damaged && known_end(Part::kIndex) == 0) {
    return UnavailableError("file " + std::to_string(stem_.seq) +
                            " lost what it had in this cell, and begins anew");
  }
  for (const Part part : kBoth) {
    const Part other = part == Part::kData ? Part::kIndex : Part::kData;
    if (primary_[Index(part)].answer != PrimaryAnswer::kAbsent) continue;
    if (known_end(part) == 0 && known_end(other) > 0) {
      return UnavailableError(stream::FileName(stem_, part) + " is not in this cell, " +
                              stream::FileName(stem_, other) + " is");
    }
    if (metadata_.primary_length[Index(part)] > 0 && !next() && !CacheIsAlive()) {
      return UnavailableError(stream::FileName(stem_, part) + " was in this cell and is gone");
    }
  }
  if (hole_ && !next_metadata_.known()) {
    return UnavailableError("file " + std::to_string(stem_.seq + 1) +
                            " is not in this cell, later ones are");
  }
  return OkStatus();
}

SourceLengths LengthsCore::cache(Part part) const {
  const int64_t limit = chunk_size_known() ? CacheLimit(part) : 0;
  return {limit, limit, ahead_.asks(part) ? INT64_MAX : 0};
}

SourceLengths LengthsCore::primary(Part part) const {
  const int64_t limit = PrimaryLimit(part);
  return {limit, std::min(limit, allowed_[Index(part)])};
}

WallTime LengthsCore::as_of() const {
  return WallTime::FromMicros(std::max(metadata_.heartbeat_us, next_metadata_.heartbeat_us));
}

std::string LengthsCore::DebugString() const {
  std::string text;
  for (Part part : {Part::kData, Part::kIndex}) {
    const int p = Index(part);
    text += p == 0 ? "data" : "; index";
    text += " cache " + std::to_string(metadata_.cache_length[p]) + " primary " +
            std::to_string(metadata_.primary_length[p]) + " allowed " + std::to_string(allowed_[p]);
    if (seal_) text += " seal " + std::to_string(seal_->length[p]);
  }
  if (!metadata_known()) text += "; no metadata";
  if (poll_ != Poll::kIdle) text += "; polling";
  if (doorbell_ == Doorbell::kSet) text += "; watching";
  if (doorbell_ == Doorbell::kHalf) text += "; watching a half";
  if (listing_) text += "; listing";
  if (waiting_for_next_) text += "; waiting for the next file";
  return text;
}

bool LengthsCore::Stuck(MonotonicTime now) const {
  return now - std::max(as_of_moved_, last_progress_) > options_.stuck_after;
}

}  // namespace tailcast::consumer
