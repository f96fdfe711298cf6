#include "tailcast/scheduler/retention_core.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::scheduler {
namespace {

using stream::ShardId;
using stream::Stem;
using stream::StreamId;

// What an absence may lose at a scheduler's restart.
constexpr Duration kNoteEvery = Duration::Seconds(60);
constexpr int kNotesOfAnAbsence = 24;
// How often a cell may say that it does not know the stream before `drop` leaves it out.
constexpr int kStrangersMax = 3;
// What is written down of ages: first, at most so often, at least so often; and how many of them
// are told apart after a restart.
constexpr Duration kNoteAgesFirst = Duration::Seconds(10);
constexpr Duration kNoteAgesMin = Duration::Seconds(60);
constexpr Duration kNoteAgesMax = Duration::Seconds(600);
constexpr int kAgesTold = 6;

FAULT_POINT(kUnknownIsDone, "scheduler.unknown_is_done",
            "a cell that has not said what it lacks lacks nothing");
FAULT_POINT(kKeepHalf, "scheduler.keep_half", "half of the bytes that are to be kept are kept");

}  // namespace

RetentionCore::RetentionCore(RetentionOptions options, const cell::Floors& floors)
    : options_(std::move(options)),
      floors_(floors),
      ran_before_(floors.ran()),
      ran_(ran_before_),
      note_ages_at_(ran_before_ + kNoteAgesFirst) {}

// --- inputs

bool RetentionCore::LooksAfter(const v1::StreamConfig& config) {
  return config.retention().age_max_us() > 0 || config.retention().shard_bytes_max() > 0;
}

RetentionCore::Stream* RetentionCore::Find(const StreamId& stream) {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : &it->second;
}

RetentionCore::Shard* RetentionCore::Find(const ShardId& shard) {
  Stream* stream = Find(shard.stream);
  if (stream == nullptr || static_cast<size_t>(shard.shard) >= stream->shards.size()) {
    return nullptr;
  }
  return &stream->shards[static_cast<size_t>(shard.shard)];
}

void RetentionCore::OnStreams(const google::protobuf::RepeatedPtrField<v1::StreamConfig>& configs) {
  std::set<StreamId> there;
  for (const v1::StreamConfig& config : configs) {
    if (config.source() != options_.cell) continue;
    OnStream(config);
    if (!streams_.empty()) there.insert(stream::IdOf(config));
  }
  std::erase_if(streams_, [&](const auto& entry) { return !there.contains(entry.first); });
}

void RetentionCore::OnStream(const v1::StreamConfig& config) {
  const StreamId id = stream::IdOf(config);
  Stream* known = Find(id);
  const bool first = known == nullptr;
  if (first) {
    const auto floor = floors_.all().lower_bound({id, 0});
    const bool has_floors = floor != floors_.all().end() && floor->first.stream == id;
    if (!LooksAfter(config) && !has_floors) return;
    known = &streams_[id];
    known->shards.resize(static_cast<size_t>(config.shards()));
    for (int32_t s = 0; s < config.shards(); ++s) {
      Shard& shard = known->shards[static_cast<size_t>(s)];
      shard.durable_floor = floors_.Floor({id, s});
    }
  }
  // Who is in the copy tree, named as a destination or not.
  std::set<std::string> cells;
  for (const v1::TreeEdge& edge : config.tree()) cells.insert(edge.to());
  for (size_t s = 0; s < known->shards.size(); ++s) {
    Shard& shard = known->shards[s];
    std::erase_if(shard.cells, [&](const auto& entry) { return !cells.contains(entry.first); });
    for (const std::string& name : cells) {
      const auto [cell, entered] = shard.cells.try_emplace(name);
      if (!entered) continue;
      const Cell remembered = Remembered({id, static_cast<int32_t>(s)}, name);
      // Who comes back into the tree is waited for anew, and the note goes.
      cell->second = first ? remembered : Cell{.noted = remembered.noted};
    }
  }
  known->retention = config.retention();
  known->left_out = {config.left_out().begin(), config.left_out().end()};
}

void RetentionCore::OnStreamRemoved(const StreamId& stream) { streams_.erase(stream); }

bool RetentionCore::OnFiles(const ShardId& id, const std::vector<Stem>& stems, bool all) {
  Shard* shard = Find(id);
  if (shard == nullptr) return false;
  bool news = all && !std::exchange(shard->listed, true);
  for (const Stem& stem : stems) {
    if (stem.seq < floors_.Floor(id)) continue;
    // A notice that overtook the one before: what is between is looked up.
    if (!all && !shard->files.empty() && stem.seq > shard->files.rbegin()->first + 1) {
      shard->listed = false;
    }
    if (!shard->files.emplace(stem.seq, File{stem, {}}).second) continue;
    shard->fresh.push_back(stem.seq);
    news = true;
  }
  return news;
}

void RetentionCore::OnRaised(const ShardId& id, int64_t floor) {
  Shard* shard = Find(id);
  if (shard == nullptr) return;
  shard->durable_floor = std::max(shard->durable_floor, floor);
}

// --- the other cells

bool RetentionCore::IsDue(MonotonicTime now, const Stream& stream, const Shard& shard,
                          const std::string& name, const Cell& cell) const {
  if (!shard.listed || shard.files.empty() || cell.asking) return false;
  if (stream.left_out.contains(name)) {
    return !cell.ever_asked || now - cell.asked >= options_.probe;
  }
  const bool heard = cell.silences == 0 && !cell.untold;
  // Somebody may wait for it to be wanted away no more.
  if (heard && shard.size_wants != 0 && cell.asked < shard.size_wants_since &&
      cell.done <= shard.size_wants) {
    return true;
  }
  if (cell.ever_asked && now - cell.asked < options_.ask_again) {
    // A new floor does not wait.
    return heard && cell.told < shard.durable_floor;
  }
  if (shard.durable_floor > 1 && now - cell.asked >= options_.refresh) return true;
  // One file more than is wanted away: then the answer is there when that one is wanted, too.
  const int64_t newest = shard.files.rbegin()->first;
  return cell.told < shard.durable_floor || cell.done < std::min(newest, shard.wanted + 1);
}

std::vector<CollectAsk> RetentionCore::TakeAsks(MonotonicTime now, const std::string& name) {
  std::vector<CollectAsk> asks;
  // Goes on behind the last one, so that those who are due again and again keep nobody waiting.
  const ShardId last = asked_to_[name];
  const auto ask = [&](const StreamId& id, Stream& stream, bool before) {
    for (size_t s = 0; s < stream.shards.size(); ++s) {
      const ShardId shard_id{id, static_cast<int32_t>(s)};
      if ((shard_id <= last) != before) continue;
      Shard& shard = stream.shards[s];
      const auto it = shard.cells.find(name);
      if (it == shard.cells.end() || !IsDue(now, stream, shard, name, it->second)) continue;
      if (static_cast<int>(asks.size()) == options_.asks_max) return;
      it->second.asked = now;
      it->second.ever_asked = it->second.asking = true;
      asks.push_back({shard_id, shard.durable_floor});
    }
  };
  for (const bool before : {false, true}) {
    for (auto& [id, stream] : streams_) ask(id, stream, before);
  }
  if (asks.empty()) return asks;
  asked_to_[name] = asks.back().shard;
  // Silent for as long as it has been asked again and again.
  const auto [silence, begins] = silent_.try_emplace(name, Silence{now, now});
  if (!begins && now - silence->second.asked > options_.refresh) silence->second.since = now;
  silence->second.asked = now;
  return asks;
}

void RetentionCore::OnAnswer(const std::string& name, const std::vector<CollectAsk>& asks,
                             const std::vector<CollectAnswer>& answers) {
  // Who can't look says as little as who is silent.
  bool says_nothing = false;
  for (size_t i = 0; i < asks.size() && i < answers.size(); ++i) {
    Stream* stream = Find(asks[i].shard.stream);
    Shard* shard = Find(asks[i].shard);
    if (shard == nullptr) continue;
    const auto it = shard->cells.find(name);
    if (it == shard->cells.end()) continue;
    Cell& cell = it->second;
    // Asked before it left the tree and came back: what it had may be gone.
    if (!cell.asking) continue;
    cell.asking = false;
    if (answers[i].done == 0) {  // it does not know the stream
      ++cell.silences;
      continue;
    }
    cell.silences = 0;
    cell.untold = answers[i].floor == 0;
    if (cell.untold) continue;
    cell.told = answers[i].floor;
    if (answers[i].done < 0) {  // it had no time to look: asked at once; or its disk fails
      cell.ever_asked = cell.unseen++ > 0;
      says_nothing |= shard->size_wants != 0;
      continue;
    }
    cell.unseen = 0;
    // Less than before, if its disk was lost.
    cell.done = answers[i].done;
    if (!stream->left_out.contains(name)) continue;
    // What the floor gave it is no getting on.
    cell.got_on |= cell.out_at > 0 && cell.done > std::max(cell.out_at, cell.told);
    cell.all_done = shard->files.empty() || (cell.done >= shard->files.rbegin()->first &&
                                             !(cell.stuck && cell.done <= cell.told));
    if (cell.out_at == 0) cell.out_at = cell.done;
  }
  if (!says_nothing) silent_.erase(name);
}

void RetentionCore::OnSilence(const std::string& name, const std::vector<CollectAsk>& asks) {
  for (const CollectAsk& ask : asks) {
    Shard* shard = Find(ask.shard);
    if (shard == nullptr) continue;
    const auto it = shard->cells.find(name);
    if (it == shard->cells.end() || !it->second.asking) continue;
    it->second.asking = false;
    ++it->second.silences;
  }
}

// --- decisions

void RetentionCore::FindWanted(const ShardId& id, const v1::Retention& retention, MonotonicTime now,
                               Shard& shard) const {
  const int64_t floor = floors_.Floor(id);
  for (const int64_t seq : std::exchange(shard.fresh, {})) {
    shard.files.at(seq).seen = std::min(ran_, floors_.SeenBy(id, seq).value_or(ran_));
  }
  shard.files.erase(shard.files.begin(), shard.files.lower_bound(floor));
  shard.wanted = floor;
  const int64_t size_wanted = std::exchange(shard.size_wants, 0);
  if (shard.files.empty()) return;
  const Stem& newest = shard.files.rbegin()->second.stem;
  const Duration age = Duration::Micros(retention.age_max_us());
  const int64_t bytes_max = retention.shard_bytes_max() / (kKeepHalf.planted() ? 2 : 1);
  // A number that nothing is listed under goes with the file before it.
  auto file = shard.files.begin();
  for (auto after = std::next(file); after != shard.files.end(); file = after++) {
    const bool over = bytes_max > 0 && stream::BytesBetween(file->second.stem, newest) > bytes_max;
    const bool old = age > Duration() && ran_ - after->second.seen > age;
    if (!over && !old && after->first > floors_.Trimmed(id)) break;
    if (over && file == shard.files.begin()) shard.size_wants = floor;
    shard.wanted = after->first;
  }
  if (shard.size_wants != size_wanted) shard.size_wants_since = now;
}

RetentionCore::Cell RetentionCore::Remembered(const ShardId& shard, const std::string& cell) const {
  const v1::HeldUp* note = floors_.HeldUp(shard, cell);
  if (note == nullptr) return {};
  const auto time = Duration::Micros(note->time_us());
  return {.held_up = time, .noted = time, .held_at = note->done_seq()};
}

// A file is wanted away, and the cell lacks it.
bool RetentionCore::HoldsUp(const Shard& shard, const Cell& cell) {
  return !shard.files.empty() && shard.files.begin()->first < shard.wanted &&
         cell.done < shard.wanted;
}

void RetentionCore::Count(const Shard& shard, Duration passed, Cell& cell) {
  const bool gets_on = cell.done != 0 && cell.done != cell.held_at;
  if (gets_on || !HoldsUp(shard, cell)) {
    cell.held_up = Duration();
    cell.held_at = cell.done;
  } else {
    cell.held_up = cell.held_up + passed;
  }
}

void RetentionCore::Note(const StreamId& id, Stream& stream, RetentionEffects& out) {
  const Duration away_max = Duration::Micros(stream.retention.away_max_us());
  const Duration step = std::max(kNoteEvery, away_max / kNotesOfAnAbsence);
  bool longer = false, shorter = false;
  for (const Shard& shard : stream.shards) {
    for (const auto& [name, cell] : shard.cells) {
      longer |= away_max > Duration() && cell.held_up >= cell.noted + step;
      shorter |= cell.held_up < cell.noted;
    }
  }
  if (!longer && !shorter) return;
  for (size_t s = 0; s < stream.shards.size(); ++s) {
    for (auto& [name, cell] : stream.shards[s].cells) {
      if (longer ? cell.held_up == cell.noted : cell.held_up >= cell.noted) continue;
      out.note.push_back({{id, static_cast<int32_t>(s)}, name, cell.held_at, cell.held_up});
      cell.noted = cell.held_up;
    }
  }
}

// The cell lacks the oldest file, which size wants away: it has said so since then, or says
// nothing.
bool RetentionCore::LacksForDrop(MonotonicTime now, const Shard& shard, const std::string& name,
                                 const Cell& cell) {
  if (shard.size_wants == 0 || cell.done > shard.size_wants) return false;
  const auto silence = silent_.find(name);
  if (silence != silent_.end() && now - silence->second.asked <= options_.refresh) {
    const MonotonicTime over = silence->second.since + options_.drop_after;
    if (now >= over) return true;
    due_ = std::min(due_, over);
  }
  return cell.ever_asked && cell.unseen == 0 && cell.asked >= shard.size_wants_since &&
         !cell.asking && (cell.silences == 0 || cell.silences >= kStrangersMax);
}

bool RetentionCore::IsBack(const Stream& stream, const std::string& name) {
  bool heard = false;
  for (const Shard& shard : stream.shards) {
    if (!shard.listed) return false;
    if (shard.files.empty()) continue;
    const auto it = shard.cells.find(name);
    if (it == shard.cells.end() || !(it->second.got_on || it->second.all_done)) return false;
    heard = true;
  }
  return heard;
}

// Up to where everybody else has everything that is wanted away.
int64_t RetentionCore::FloorWithout(const Shard& shard,
                                    const std::set<std::string>& left_out) const {
  int64_t floor = shard.wanted;
  for (const auto& [name, cell] : shard.cells) {
    if (left_out.contains(name) || (cell.done == 0 && kUnknownIsDone.planted())) continue;
    floor = std::min(floor, cell.done);
  }
  return floor;
}

void RetentionCore::LookAt(const StreamId& id, Stream& stream, MonotonicTime now, Duration passed,
                           RetentionEffects& out) {
  const Duration away_max = Duration::Micros(stream.retention.away_max_us());
  std::set<std::string> leave, lack;
  for (size_t s = 0; s < stream.shards.size(); ++s) {
    Shard& shard = stream.shards[s];
    const ShardId shard_id{id, static_cast<int32_t>(s)};
    if (!shard.listed) {
      out.list.insert(shard_id);
      continue;
    }
    FindWanted(shard_id, stream.retention, now, shard);
    for (auto& [name, cell] : shard.cells) {
      if (stream.left_out.contains(name)) {
        cell.held_up = Duration();
        cell.held_at = -1;
        continue;
      }
      Count(shard, passed, cell);
      if (away_max > Duration() && cell.held_up >= away_max) leave.insert(name);
      if (stream.retention.drop() && LacksForDrop(now, shard, name, cell)) lack.insert(name);
    }
  }
  Note(id, stream, out);
  // Only if the floor rises by it, in the same write.
  std::set<std::string> out_then = stream.left_out;
  out_then.insert(leave.begin(), leave.end());
  out_then.insert(lack.begin(), lack.end());
  for (size_t s = 0; s < stream.shards.size() && !lack.empty(); ++s) {
    const Shard& shard = stream.shards[s];
    if (!shard.listed || shard.size_wants == 0) continue;
    if (FloorWithout(shard, out_then) <= floors_.Floor({id, static_cast<int32_t>(s)})) continue;
    leave.insert(lack.begin(), lack.end());
    break;
  }
  for (const std::string& name : leave) {
    out.leave_out.emplace_back(id, name);
    stream.left_out.insert(name);
    for (Shard& shard : stream.shards) {
      // Asked soon whether it is back, but not at once.
      Cell& cell = shard.cells.at(name);
      cell = {.told = cell.told,
              .asked = now,
              .ever_asked = true,
              .asking = cell.asking,
              .noted = cell.noted,
              .out_at = cell.done,
              .stuck = cell.done > 0 && cell.silences == 0 && !cell.untold};
    }
  }
  for (size_t s = 0; s < stream.shards.size(); ++s) {
    Shard& shard = stream.shards[s];
    if (!shard.listed) continue;
    const int64_t floor = FloorWithout(shard, stream.left_out);
    const ShardId shard_id{id, static_cast<int32_t>(s)};
    if (floor > floors_.Floor(shard_id)) out.raise.emplace_back(shard_id, floor);
  }
}

void RetentionCore::NoteAges(RetentionEffects& out) {
  if (ran_ < note_ages_at_) return;
  Duration step = kNoteAgesMax;
  for (const auto& [id, stream] : streams_) {
    const Duration age = Duration::Micros(stream.retention.age_max_us());
    if (age == Duration()) continue;
    const Duration apart = std::max(kNoteAgesMin, age / kAgesTold);
    for (size_t s = 0; s < stream.shards.size(); ++s) {
      const Shard& shard = stream.shards[s];
      if (!shard.listed || shard.files.size() < 2) continue;  // nothing of it can go
      out.ran = ran_;
      step = std::min(step, apart);
      const ShardId shard_id{id, static_cast<int32_t>(s)};
      const auto& [seq, file] = *shard.files.rbegin();
      const auto [noted, noted_ran] = floors_.LastSeen(shard_id);
      if (seq <= noted || (noted != 0 && file.seen - noted_ran < apart)) continue;
      out.seen.push_back({shard_id, seq, file.seen, ran_ - age});
    }
  }
  // Who has just begun may end soon.
  if (out.ran) note_ages_at_ = ran_ + std::clamp(ran_ - ran_before_, kNoteAgesFirst, step);
}

void RetentionCore::DoWork(MonotonicTime now, RetentionEffects& out) {
  due_ = MonotonicTime::Max();
  if (worked_) ran_ = ran_ + (now - *worked_);
  const Duration passed = worked_ ? std::min(now - *worked_, options_.tick * 2) : Duration();
  worked_ = now;
  for (auto& [id, stream] : streams_) {
    std::erase_if(stream.left_out, [&, &id = id, &stream = stream](const std::string& name) {
      if (!IsBack(stream, name)) return false;
      out.take_in.emplace_back(id, name);
      return true;
    });
  }
  for (auto& [id, stream] : streams_) LookAt(id, stream, now, passed, out);
  NoteAges(out);
}

// --- for people

std::vector<RetentionHeld> RetentionCore::Held() const {
  std::vector<RetentionHeld> held;
  for (const auto& [id, stream] : streams_) {
    for (size_t s = 0; s < stream.shards.size(); ++s) {
      const Shard& shard = stream.shards[s];
      for (const auto& [name, cell] : shard.cells) {
        if (stream.left_out.contains(name) || !HoldsUp(shard, cell)) continue;
        held.push_back({{id, static_cast<int32_t>(s)}, name, cell.done, cell.held_up});
      }
    }
  }
  return held;
}

}  // namespace tailcast::scheduler
