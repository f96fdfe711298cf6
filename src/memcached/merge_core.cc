#include "tailcast/memcached/merge_core.h"

#include "tailcast/cache/merge.h"

namespace tailcast::memcached {

using cache::MutationResult;

MergeCore::MergeCore(const ItemFormat& format, const cache::Mutation& mutation, uint32_t rounds_max)
    : format_(format), mutation_(mutation), rounds_max_(rounds_max) {
  if (mutation.erase) {
    step_ = Step::kDelete;
  } else if (!cache::WellFormed(mutation.rule, mutation.value)) {
    Done(MutationResult::kRefused);
  }
}

void MergeCore::OnItem(std::optional<std::string_view> item, uint64_t version) {
  version_ = version;
  std::optional<ItemFormat::Value> stored;
  if (item.has_value()) {
    stored = format_.Decode(mutation_.key, *item);
    damaged_items_ += stored.has_value() ? 0 : 1;
  }
  if (!stored.has_value()) {
    if (mutation_.value.empty()) return Done(MutationResult::kNoChange);
    item_ = format_.Encode(mutation_.key, mutation_.rule, mutation_.value);
    step_ = item.has_value() ? Step::kSwap : Step::kAdd;
    return;
  }
  std::string merged(stored->bytes);
  const MutationResult result = stored->rule != mutation_.rule
                                    ? MutationResult::kMismatch
                                    : MergeInto(mutation_.rule, merged, mutation_.value);
  switch (result) {
    case MutationResult::kApplied:
      item_ = format_.Encode(mutation_.key, mutation_.rule, merged);
      step_ = Step::kSwap;
      return;
    case MutationResult::kMismatch:
      mismatch_ = true;
      step_ = Step::kDelete;
      return;
    case MutationResult::kNoChange:
    case MutationResult::kRefused:
      return Done(result);
  }
}

void MergeCore::OnStored(StoreResult result) {
  if (step_ == Step::kDelete) {
    if (mismatch_) return Done(MutationResult::kMismatch);
    return Done(result == StoreResult::kDone ? MutationResult::kApplied
                                             : MutationResult::kNoChange);
  }
  switch (result) {
    case StoreResult::kDone:
      return Done(MutationResult::kApplied);
    case StoreResult::kRefused:
      return Done(MutationResult::kRefused);
    case StoreResult::kConflict:
    case StoreResult::kAbsent:
      if (retries_ + 1 >= rounds_max_) return Done(std::nullopt);
      ++retries_;
      step_ = Step::kGet;
      return;
  }
}

}  // namespace tailcast::memcached
