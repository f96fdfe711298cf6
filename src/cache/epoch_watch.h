// Who is told that the cache epoch is another one: what was acknowledged before may be lost, so
// that whoever publishes lengths, seals or locks does it again at once, and not when there is news.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/types.h"

namespace tailcast::cache {

class EpochWatch {
 public:
  // Called at each change of the epoch, as long as its scope lives.
  void Add(Callback<void()> changed) {
    std::erase_if(watchers_, [](const auto& watcher) { return watcher.dropped(); });
    watchers_.push_back(std::move(changed));
  }

  // The epoch as of now. The first one that is known follows on none: nothing was acknowledged
  // before. A smaller one is that of a registry that was lost and begun anew.
  void OnEpoch(CacheEpoch epoch) {
    const CacheEpoch before = std::exchange(epoch_, epoch);
    if (before == CacheEpoch{} || before == epoch) return;
    // Who is told may add others, or end this watch.
    const Scope::Watcher self = scope_.Watch();
    std::vector<Callback<void()>> told = std::move(watchers_);
    watchers_.clear();
    for (Callback<void()>& watcher : told) {
      watcher();
      if (self.ended()) return;
    }
    watchers_.insert(watchers_.begin(), std::make_move_iterator(told.begin()),
                     std::make_move_iterator(told.end()));
  }

 private:
  CacheEpoch epoch_{};
  std::vector<Callback<void()>> watchers_;
  Scope scope_;
};

}  // namespace tailcast::cache
