#include "tailcast/inspect/contents.h"

#include <algorithm>

#include "tailcast/base/strong.h"
#include "tailcast/inspect/text.h"
#include "tailcast/stream/lock.h"

namespace tailcast::inspect {
namespace {

// "4096+320": data and index.
std::string Lengths(const int64_t (&lengths)[stream::kParts]) {
  return std::to_string(lengths[0]) + "+" + std::to_string(lengths[1]);
}

std::string SealText(const stream::PairMetadata& file) {
  if (!file.seal[0].has_value() && !file.seal[1].has_value()) return "open";
  const auto part = [&](int i) { return file.seal[i] ? std::to_string(*file.seal[i]) : "?"; };
  return "sealed at " + part(0) + "+" + part(1);
}

std::string Ago(int64_t then_us, WallTime now) {
  const int64_t ago_us = now.micros() - then_us;
  // Of another host's clock.
  return ago_us < 0 ? SpanText(Duration::Micros(-ago_us)) + " ahead of this clock"
                    : SpanText(Duration::Micros(ago_us)) + " ago";
}

}  // namespace

std::map<int64_t, stream::PairMetadata> FilesOf(int64_t seq, std::string_view group_value) {
  std::map<int64_t, stream::PairMetadata> files;
  const int64_t first = stream::MetadataGroupOf(seq) * stream::kPairsPerGroup;
  for (int64_t at = first; at < first + stream::kPairsPerGroup; ++at) {
    const stream::PairMetadata file = stream::DecodePairMetadata(at, group_value);
    if (file.known()) files.emplace(at, file);
  }
  return files;
}

std::vector<std::string> Describe(const KeyName& name, std::string_view value, WallTime now) {
  std::vector<std::string> lines;
  switch (name.kind) {
    case KeyName::Kind::kChunk:
      break;
    case KeyName::Kind::kLock: {
      const auto lock = stream::DecodeLock(value);
      if (!lock.has_value()) break;
      const char* const state = lock->state == stream::LockState::kHeld       ? "held"
                                : lock->state == stream::LockState::kPoisoned ? "poisoned"
                                                                              : "released";
      lines.push_back(std::string(state) + " by operation " + Hex(lock->owner, 16) + " of tree " +
                      std::to_string(Raw(lock->term.tree_version)) + ", scheduler " +
                      std::to_string(Raw(lock->term.scheduler_incarnation)) + ", attempt " +
                      std::to_string(lock->term.attempt));
      break;
    }
    case KeyName::Kind::kMetadata: {
      const auto files = FilesOf(name.seq, value);
      if (!files.contains(name.seq)) {
        lines.push_back("file " + std::to_string(name.seq) + " is not known");
      }
      for (const auto& [seq, file] : files) {
        lines.push_back("file " + std::to_string(seq) + ": cache " + Lengths(file.cache_length) +
                        ", primary " + Lengths(file.primary_length) + " (data+index), " +
                        SealText(file) + ", chunks of " + std::to_string(file.chunk_size));
        lines.push_back("created " + TimeText(WallTime::FromMicros(file.created_us)) +
                        ", begins at byte " + std::to_string(file.start_byte) + " and message " +
                        std::to_string(file.start_number) + ", epoch " +
                        std::to_string(Raw(file.primary_epoch)) +
                        (file.heartbeat_us > 0 ? ", writer seen " + Ago(file.heartbeat_us, now)
                                               : std::string()));
      }
      break;
    }
  }
  return lines;
}

}  // namespace tailcast::inspect
