#include "tailcast/app/stream_digest.h"

#include <algorithm>

namespace tailcast::app {
namespace {

void Append(int64_t value, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
  }
}

// What is different in the two cells of a hop; empty: nothing.
std::string Difference(const CellDigest* from, const CellDigest* to) {
  if (to == nullptr || from == nullptr) return "not asked";
  if (!to->error.empty()) return to->error;
  for (const auto& [number, shard] : from->shards) {
    const auto other = to->shards.find(number);
    const std::string which = "shard " + std::to_string(number);
    if (other == to->shards.end()) return which + " is not there";
    const auto at = ShardDigest::FirstDifference(shard, other->second);
    if (!at) continue;
    if (*at >= std::min(shard.end(), other->second.end())) {
      return which + " ends at message " + std::to_string(other->second.end()) + " rather than " +
             std::to_string(shard.end());
    }
    return which + " differs in messages " + std::to_string(*at) + " to " +
           std::to_string(
               std::min(*at - *at % ShardDigest::kBlockMessages + ShardDigest::kBlockMessages,
                        shard.end()) -
               1);
  }
  return "";
}

}  // namespace

void ShardDigest::Add(const consumer::Message& message) {
  if (blocks_.empty()) first_ = message.number;
  end_ = message.number + 1;
  bytes_ += message.end_byte() - message.byte;
  Hash128Value& block = blocks_[message.number / kBlockMessages];
  // A chain: what came before, and then this message.
  std::string text;
  Append(static_cast<int64_t>(block.lo), text);
  Append(static_cast<int64_t>(block.hi), text);
  Append(message.number, text);
  Append(message.byte, text);
  Append(message.time_us, text);
  Append(static_cast<int64_t>(message.headers.bytes().size()), text);
  text.append(message.headers.bytes()).append(message.payload);
  block = Hash128(text);
}

std::optional<int64_t> ShardDigest::FirstDifference(const ShardDigest& a, const ShardDigest& b) {
  const int64_t begin = std::max(a.first_, b.first_);
  for (const auto& [number, block] : a.blocks_) {
    const int64_t first = number * kBlockMessages;
    // Of the block in which one of them begins both need all.
    if (a.first_ != b.first_ && first < begin) continue;
    const auto other = b.blocks_.find(number);
    if (other == b.blocks_.end()) return std::min(a.end_, b.end_);
    if (other->second == block) continue;
    // The same messages, and then one that only one of them has, look alike from here.
    const int64_t end = std::min(a.end_, b.end_);
    if (a.end_ != b.end_ && end < first + kBlockMessages) return end;
    return std::max(first, begin);
  }
  if (a.end_ != b.end_) return std::min(a.end_, b.end_);
  return std::nullopt;
}

std::vector<HopFinding> CompareHops(const copytree::Tree& tree,
                                    const std::map<std::string, CellDigest>& cells) {
  std::vector<HopFinding> findings;
  const auto find = [&](const std::string& cell) {
    const auto it = cells.find(cell);
    return it == cells.end() ? nullptr : &it->second;
  };
  for (const copytree::Edge& hop : tree.edges) {
    std::string what = Difference(find(hop.from), find(hop.to));
    const bool same = what.empty();
    findings.push_back({.hop = hop, .same = same, .what = std::move(what)});
  }
  return findings;
}

}  // namespace tailcast::app
