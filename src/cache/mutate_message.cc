#include "tailcast/cache/mutate_message.h"

#include <cstring>

#include "tailcast/base/strong.h"

namespace tailcast::cache {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint8_t kErase = 1;

struct Head {
  uint32_t version;
  uint32_t count;
  ConfigurationId configuration;
  ProcessIncarnation incarnation;
  CacheEpoch epoch;
};
static_assert(sizeof(Head) == MutateMessage::kHeadBytes);

struct WireEntry {
  uint64_t key_hi, key_lo;
  uint32_t length;
  uint8_t rule;
  uint8_t flags;
  uint16_t reserved;
};
static_assert(sizeof(WireEntry) == MutateMessage::kEntryBytes);

struct AnswerHead {
  uint32_t count;  // of the results that follow, a byte each
  uint8_t status;
  uint8_t reserved[3];
  ConfigurationId configuration;
};
static_assert(sizeof(AnswerHead) == MutateMessage::kAnswerHeadBytes);

template <typename T>
T Load(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}
template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

MutateMessage::Entry EntryAt(std::string_view entries, size_t index, std::string_view value) {
  const auto entry = Load<WireEntry>(entries, index * sizeof(WireEntry));
  return {{entry.key_hi, entry.key_lo},
          static_cast<MergeRule>(entry.rule),
          (entry.flags & kErase) != 0,
          value};
}

}  // namespace

void MutateMessage::Add(const Key& key, MergeRule rule, bool erase, std::string_view value) {
  if (erase) value = {};
  const WireEntry entry{.key_hi = key.hi,
                        .key_lo = key.lo,
                        .length = static_cast<uint32_t>(value.size()),
                        .rule = static_cast<uint8_t>(rule),
                        .flags = erase ? kErase : uint8_t{0},
                        .reserved = 0};
  entries_.append(BytesOf(entry));
  values_.push_back(value);
  value_bytes_ += value.size();
}

const std::vector<std::string_view>& MutateMessage::Parts() {
  const Head head{.version = kVersion,
                  .count = static_cast<uint32_t>(values_.size()),
                  .configuration = context_.configuration,
                  .incarnation = context_.incarnation,
                  .epoch = context_.epoch};
  head_.assign(BytesOf(head));
  parts_.clear();
  parts_.reserve(2 + values_.size());
  parts_.push_back(head_);
  parts_.push_back(entries_);
  parts_.insert(parts_.end(), values_.begin(), values_.end());
  return parts_;
}

MutateMessage::Entry MutateMessage::entry(size_t index) const {
  return EntryAt(entries_, index, values_[index]);
}

Result<MutateReader> MutateReader::Parse(std::string_view message) {
  if (message.size() < sizeof(Head)) return InvalidArgumentError("a message without a head");
  const auto head = Load<Head>(message, 0);
  if (head.version != kVersion) {
    return InvalidArgumentError("a message of version " + std::to_string(head.version));
  }
  const uint64_t entries = uint64_t{head.count} * sizeof(WireEntry);
  if (head.count > MutateMessage::kEntriesMax || message.size() - sizeof(Head) < entries) {
    return InvalidArgumentError("a message of " + std::to_string(message.size()) +
                                " bytes does not have " + std::to_string(head.count) +
                                " mutations");
  }
  MutateReader reader;
  reader.context_ = {head.configuration, head.epoch, head.incarnation};
  reader.entries_ = message.substr(sizeof(Head), entries);
  reader.values_ = message.substr(sizeof(Head) + entries);
  reader.count_ = head.count;
  uint64_t bytes = 0;
  for (size_t i = 0; i < reader.count_; ++i) {
    const auto entry = Load<WireEntry>(reader.entries_, i * sizeof(WireEntry));
    if (entry.rule > static_cast<uint8_t>(MergeRule::kMaxBytes) || (entry.flags & ~kErase) != 0 ||
        entry.reserved != 0) {
      return InvalidArgumentError("a mutation with the unknown merge rule " +
                                  std::to_string(entry.rule) + ", flags " +
                                  std::to_string(entry.flags));
    }
    bytes += entry.length;
  }
  if (bytes != reader.values_.size()) {
    return InvalidArgumentError("values of " + std::to_string(bytes) + " bytes in a message with " +
                                std::to_string(reader.values_.size()));
  }
  return reader;
}

bool MutateReader::Next(MutateMessage::Entry& entry) {
  if (index_ >= count_) return false;
  const auto length = Load<WireEntry>(entries_, index_ * sizeof(WireEntry)).length;
  entry = EntryAt(entries_, index_, values_.substr(position_, length));
  position_ += length;
  ++index_;
  return true;
}

void AppendAnswer(const MutateAnswer& answer, std::string& out) {
  const AnswerHead head{.count = static_cast<uint32_t>(answer.results.size()),
                        .status = static_cast<uint8_t>(answer.status),
                        .reserved = {},
                        .configuration = answer.configuration};
  out.append(BytesOf(head));
  out.append(answer.results);
}

std::optional<MutateAnswer> ParseAnswer(std::string_view bytes) {
  if (bytes.size() < sizeof(AnswerHead)) return std::nullopt;
  const auto head = Load<AnswerHead>(bytes, 0);
  if (head.status > static_cast<uint8_t>(MutateStatus::kMalformed) ||
      head.count != bytes.size() - sizeof(AnswerHead)) {
    return std::nullopt;
  }
  return MutateAnswer{static_cast<MutateStatus>(head.status), head.configuration,
                      bytes.substr(sizeof(AnswerHead))};
}

}  // namespace tailcast::cache
