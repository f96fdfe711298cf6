#include "tailcast/app/tail_ledger.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "tailcast/base/crc32c.h"

namespace tailcast::app {
namespace {

constexpr std::string_view kHeading =
    "# where `tailcast tail` stands; version 1: shard, from byte, device, inode, offset, "
    "mark's end, bytes and crc, seen, path\n";

// Takes a number and the space behind it.
template <typename T>
bool Take(std::string_view& line, T& value, int base = 10) {
  const char* const end = line.data() + line.size();
  const auto [at, error] = std::from_chars(line.data(), end, value, base);
  if (error != std::errc() || at == end || *at != ' ') return false;
  line.remove_prefix(static_cast<size_t>(at - line.data()) + 1);
  return true;
}

bool ParseRun(std::string_view line, TailState& state) {
  int32_t shard = 0;
  TailRun run;
  FilePlace& place = run.place;
  const bool numbers = Take(line, shard) && Take(line, run.byte) && Take(line, place.key.device) &&
                       Take(line, place.key.inode) && Take(line, place.offset) &&
                       Take(line, place.mark.end) && Take(line, place.mark.bytes) &&
                       Take(line, place.mark.crc, 16) && Take(line, place.seen);
  if (!numbers || line.empty() || line.front() != '/') return false;
  place.key.path = line;
  const FileMark& mark = place.mark;
  if (shard < 0 || run.byte < 0 || place.offset < 0 || mark.end < 0 || mark.bytes < 0 ||
      mark.bytes > std::min(mark.end, FileMark::kBytesMax)) {
    return false;
  }
  auto& runs = state.shards[shard];
  if (!runs.empty() && runs.back().byte > run.byte) return false;
  runs.push_back(std::move(run));
  return true;
}

// Whether what is read at `to` lies right behind what was read up to `from`. The beginning of a
// file is a run of its own: only then it is known by what it begins with.
bool GoesOn(const FilePlace& from, const FilePlace& to) {
  return from.key == to.key && from.offset == to.offset && to.offset > 0;
}

}  // namespace

FileMark FileMark::Of(int64_t end, std::string_view before) {
  const auto bytes = std::min<size_t>(before.size(), kBytesMax);
  return {end, static_cast<int64_t>(bytes), Crc32c(before.substr(before.size() - bytes))};
}

Result<TailLedger> TailLedger::Recover(const std::vector<TailRun>& runs, int64_t end) {
  TailLedger ledger;
  ledger.settled_ = ledger.end_ = end;
  if (!runs.empty() && end < runs.front().byte) {
    return DataLossError("the shard has " + std::to_string(end) + " bytes, and had " +
                         std::to_string(runs.front().byte) + " before");
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    FilePlace place = runs[i].place;
    if (runs[i].byte > end) {
      // Nothing of it came to be. That the file is there is known, and what it begins with, unless
      // its place follows from that of another one, which was not so far yet: a copy.
      if (place.offset > 0) continue;
      FilePlace& known = ledger.places_.try_emplace(place.key, place).first->second;
      if (known.offset == 0 && known.mark.bytes == 0) known = place;
      continue;
    }
    const int64_t to = i + 1 < runs.size() ? std::min(runs[i + 1].byte, end) : end;
    const int64_t bytes = to - runs[i].byte;
    if (bytes > INT64_MAX - place.offset) {
      return DataLossError(std::to_string(bytes) + " bytes were read from " +
                           std::to_string(place.offset) +
                           " on, more than a file may have: " + place.key.path);
    }
    place.offset += bytes;
    FilePlace& known = ledger.places_[place.key];
    if (bytes > 0) {
      ledger.last_ = place.key;
    } else if (ledger.last_ == place.key && known.offset != place.offset) {
      ledger.last_.reset();  // it was truncated behind them
    }
    known = place;
  }
  return ledger;
}

std::vector<FilePlace> TailLedger::Places() const {
  std::vector<FilePlace> places;
  for (const auto& [key, place] : places_) places.push_back(place);
  return places;
}

bool TailLedger::Add(const FilePlace& from, const FilePlace& to) {
  // What is durable already says that the next bytes are those of the last file.
  const FilePlace* before = !pieces_.empty() ? &pieces_.back().to
                            : last_          ? &places_.at(*last_)
                                             : nullptr;
  const bool goes_on = before != nullptr && GoesOn(*before, from);
  forgotten_.erase(from.key);
  end_ += to.offset - from.offset;
  pieces_.push_back({end_, from, to});
  return std::exchange(unsaved_, false) || !goes_on;
}

bool TailLedger::OnDurable(int64_t byte) {
  bool moved = false;
  while (!pieces_.empty() && pieces_.front().end <= byte) {
    Piece& piece = pieces_.front();
    settled_ = piece.end;
    last_.reset();
    if (!forgotten_.contains(piece.to.key)) {
      last_ = piece.to.key;
      places_[piece.to.key] = std::move(piece.to);
    }
    pieces_.pop_front();
    moved = true;
  }
  if (pieces_.empty()) forgotten_.clear();
  return moved;
}

bool TailLedger::Observe(const FilePlace& place) {
  if (pieces_.empty()) {
    const auto [at, is_new] = places_.try_emplace(place.key, place);
    FilePlace& known = at->second;
    const bool moved = known.offset != place.offset;
    // Its bytes do not go on where they stood: the run ends.
    if (last_ == place.key && moved) last_.reset();
    known = place;
    return is_new || moved;
  }
  // It holds when everything before it is durable: a copy is where the file was that it is of.
  const auto piece = std::find_if(pieces_.rbegin(), pieces_.rend(),
                                  [&](const Piece& p) { return p.to.key == place.key; });
  const auto known = places_.find(place.key);
  const FilePlace* before = piece != pieces_.rend()  ? &piece->to
                            : known != places_.end() ? &known->second
                                                     : nullptr;
  if (before != nullptr && before->offset == place.offset) return false;
  forgotten_.erase(place.key);
  pieces_.push_back({end_, place, place});
  unsaved_ = true;
  return true;
}

void TailLedger::Forget(const FileKey& key) {
  if (last_ == key) last_.reset();
  places_.erase(key);
  if (!pieces_.empty()) forgotten_.insert(key);
}

std::vector<TailRun> TailLedger::runs() const {
  std::vector<TailRun> runs;
  for (const auto& [key, place] : places_) {
    if (key != last_) runs.push_back({settled_, place});
  }
  if (last_) runs.push_back({settled_, places_.at(*last_)});
  int64_t begin = settled_;
  const FilePlace* before = last_ ? &places_.at(*last_) : nullptr;
  for (const Piece& piece : pieces_) {
    if (before == nullptr || !GoesOn(*before, piece.from)) runs.push_back({begin, piece.from});
    begin = piece.end;
    before = &piece.to;
  }
  return runs;
}

std::string TailState::ToText() const {
  std::string text(kHeading);
  char line[64];
  std::snprintf(line, sizeof line, "incarnation %016" PRIx64 "\n",
                static_cast<uint64_t>(incarnation));
  text += line;
  for (const auto& [shard, runs] : shards) {
    for (const TailRun& run : runs) {
      const FilePlace& place = run.place;
      char crc[16];
      std::snprintf(crc, sizeof crc, "%08" PRIx32, place.mark.crc);
      text += std::to_string(shard) + ' ' + std::to_string(run.byte) + ' ' +
              std::to_string(place.key.device) + ' ' + std::to_string(place.key.inode) + ' ' +
              std::to_string(place.offset) + ' ' + std::to_string(place.mark.end) + ' ' +
              std::to_string(place.mark.bytes) + ' ' + crc + ' ' + std::to_string(place.seen) +
              ' ' + place.key.path + '\n';
    }
  }
  return text;
}

Result<TailState> TailState::Parse(std::string_view text) {
  TailState state;
  bool begun = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    bool ok = false;
    if (!begun && line.starts_with("incarnation ") && line.size() == 28) {
      uint64_t incarnation = 0;
      const char* const at = line.data() + 12;
      ok = std::from_chars(at, at + 16, incarnation, 16).ptr == at + 16;
      state.incarnation = stream::StreamIncarnation{incarnation};
      begun = true;
    } else if (begun && end != std::string_view::npos) {
      ok = ParseRun(line, state);
    }
    if (!ok) {
      return DataLossError("line " + std::to_string(number) +
                           " is none of a position file of `tailcast tail`");
    }
  }
  if (!begun) return DataLossError("it is no position file of `tailcast tail`");
  return state;
}

}  // namespace tailcast::app
