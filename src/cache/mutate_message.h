// A bulk of mutations as a message of the fabric's channel, and its answer: the bytes of
// docs/formats/cache_messages.md. What proto/cache.proto says of CacheMutateRequest holds here,
// too: that is the same for who has no channel. Decoding survives whatever a peer sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/types.h"
#include "tailcast/fabric/channel.h"

namespace tailcast::cache {

// Who writes, and to whom it means to.
struct WriteContext {
  ConfigurationId configuration{};   // the writer's ring; 0: not said
  CacheEpoch epoch{};                // the cache epoch that it knows
  ProcessIncarnation incarnation{};  // of the server that is meant; kNone: whichever
};

// Mutations of one bulk for one replica, whichever way they go there. Values are the caller's.
class MutateMessage {
 public:
  // What a message takes besides its values.
  static constexpr uint32_t kHeadBytes = 32;
  static constexpr uint32_t kEntryBytes = 24;
  static constexpr uint32_t kAnswerHeadBytes = 16;
  // An answer has a byte for each.
  static constexpr size_t kEntriesMax = fabric::kAnswerBytesMax - kAnswerHeadBytes;

  // True: `value_bytes` more would be too much for one message.
  bool FullFor(size_t value_bytes) const {
    return values_.size() >= kEntriesMax ||
           bytes() + kEntryBytes + value_bytes > fabric::kMessageBytesMax;
  }
  void Add(const Key& key, MergeRule rule, bool erase, std::string_view value);
  void set_context(const WriteContext& context) { context_ = context; }
  const WriteContext& context() const { return context_; }

  size_t size() const { return values_.size(); }
  size_t bytes() const { return kHeadBytes + entries_.size() + value_bytes_; }

  // The message in parts: its head, and the values. Until it or they change.
  const std::vector<std::string_view>& Parts();

  struct Entry {
    Key key;
    MergeRule rule = MergeRule::kLongerWins;
    bool erase = false;
    std::string_view value;
  };
  Entry entry(size_t index) const;

 private:
  WriteContext context_;
  std::string entries_;  // as they are sent
  std::vector<std::string_view> values_;
  size_t value_bytes_ = 0;
  std::string head_;
  std::vector<std::string_view> parts_;
};

// Walks over a message.
class MutateReader {
 public:
  // InvalidArgument: it does not add up, or has an unknown rule. The message outlives the reader.
  static Result<MutateReader> Parse(std::string_view message);
  const WriteContext& context() const { return context_; }
  size_t size() const { return count_; }
  bool Next(MutateMessage::Entry& entry);

 private:
  WriteContext context_;
  std::string_view entries_, values_;
  size_t count_ = 0, index_ = 0, position_ = 0;
};

// What became of a bulk at one replica.
enum class MutateStatus : uint8_t {
  kDone,              // each mutation has a result
  kOldRing,           // nothing was done: the writer's ring or epoch is older than the server's
  kOtherIncarnation,  // nothing was done: the server is another life of it than the one meant
  kNotServing,        // nothing was done: the server is in no ring, or stalled
  kMalformed,         // nothing was done: the message does not add up
};
struct MutateAnswer {
  MutateStatus status = MutateStatus::kDone;
  ConfigurationId configuration{};  // the server's
  std::string_view results;         // a MutationResult each; only with kDone
};
void AppendAnswer(const MutateAnswer& answer, std::string& out);
// nullopt: it does not add up. The results are in `bytes`; whether they are known ones is not
// checked.
std::optional<MutateAnswer> ParseAnswer(std::string_view bytes);

}  // namespace tailcast::cache
