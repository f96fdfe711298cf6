#include "tailcast/cache/joined_value.h"

#include <utility>

#include "tailcast/cache/merge.h"

namespace tailcast::cache {

void JoinedValue::Take(ClientContext& context, const Key& key, MergeRule rule,
                       const std::string& replica, std::string_view bytes) {
  if (!bytes_.has_value()) {
    room_.assign(bytes);
    bytes_ = std::move(room_);
    brought_by_ = &replica;
    return;
  }
  const size_t had = bytes_->size();
  if (MergeInto(rule, *bytes_, bytes) != MutationResult::kMismatch) return;
  ++context.counters.value_mismatches;
  context.contradictions.Say(context.loop.Now(), key,
                             std::to_string(bytes.size()) + " bytes of " + replica +
                                 " contradict " + std::to_string(had) + " bytes of " +
                                 *brought_by_ + "; those stay");
}

void JoinedValue::Finish(ClientContext& context, const Key& key, MergeRule rule) {
  if (!bytes_.has_value()) return;
  const size_t length = bytes_->size();
  if (context.values.Join(key, rule, *bytes_) != MutationResult::kMismatch) return;
  ++context.counters.remembered_mismatches;
  context.contradictions.Say(context.loop.Now(), key,
                             std::to_string(length) + " bytes of " + *brought_by_ +
                                 " contradict what this client was given before");
}

}  // namespace tailcast::cache
