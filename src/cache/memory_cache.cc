#include "tailcast/cache/memory_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tailcast/base/crc32c.h"
#include "tailcast/cache/key_read_core.h"
#include "tailcast/cache/merge.h"

namespace tailcast::cache {

void MemoryStore::SetFaults(MemoryFaults faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}

void MemoryStore::EvictAll() {
  std::lock_guard lock(mutex_);
  EvictAllLocked();
}

void MemoryStore::BeginEpoch() {
  std::lock_guard lock(mutex_);
  EvictAllLocked();
  ++epoch_;
  for (MemoryClient* client : clients_) {
    client->loop_->Post(client->scope_.Bind(
        [client, epoch = CacheEpoch{epoch_}] { client->epochs_.OnEpoch(epoch); }));
  }
}

void MemoryStore::EvictAllLocked() {
  std::vector<Key> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  entries_.clear();
  for (const Key& key : keys) ChangedLocked(key);
}

void MemoryStore::Evict(Key key) {
  std::lock_guard lock(mutex_);
  if (entries_.erase(key) > 0) ChangedLocked(key);
}

std::optional<std::string> MemoryStore::Get(Key key) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return std::nullopt;
  return it->second.value;
}

size_t MemoryStore::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

uint64_t MemoryStore::mismatches() const {
  std::lock_guard lock(mutex_);
  return mismatches_;
}

MutationResult MemoryStore::Apply(const Mutation& mutation) {
  std::lock_guard lock(mutex_);
  return ApplyLocked(mutation);
}

MutationResult MemoryStore::ApplyLocked(const Mutation& mutation) {
  const auto it = entries_.find(mutation.key);
  if (mutation.erase) {
    if (it == entries_.end()) return MutationResult::kNoChange;
    entries_.erase(it);
    ChangedLocked(mutation.key);
    return MutationResult::kApplied;
  }
  if (!WellFormed(mutation.rule, mutation.value)) return MutationResult::kRefused;
  if (it == entries_.end()) {
    if (mutation.value.empty()) return MutationResult::kNoChange;
    entries_[mutation.key] = Entry{mutation.rule, mutation.value};
    ChangedLocked(mutation.key);
    return MutationResult::kApplied;
  }
  const MutationResult result = it->second.rule != mutation.rule
                                    ? MutationResult::kMismatch
                                    : MergeInto(mutation.rule, it->second.value, mutation.value);
  if (result == MutationResult::kMismatch) {
    ++mismatches_;
    entries_.erase(it);
  }
  if (result == MutationResult::kMismatch || result == MutationResult::kApplied) {
    ChangedLocked(mutation.key);
  }
  return result;
}

void MemoryStore::ChangedLocked(Key key) {
  versions_[key] = next_version_++;
  const auto it = watchers_.find(key);
  if (it == watchers_.end()) return;
  std::vector<Watcher> watchers = std::move(it->second);
  watchers_.erase(it);
  for (Watcher& watcher : watchers) {
    watcher.loop->Post(std::move(watcher.notify));
  }
}

MemoryClient::MemoryClient(EventLoop* loop, MemoryStore* store) : loop_(loop), store_(store) {
  std::lock_guard lock(store_->mutex_);
  store_->clients_.push_back(this);
  epochs_.OnEpoch(CacheEpoch{store_->epoch_});
}

MemoryClient::~MemoryClient() {
  {
    std::lock_guard lock(store_->mutex_);
    std::erase(store_->clients_, this);
  }
  while (!watches_.empty()) CancelWatch(watches_.begin()->first);
}

void MemoryClient::Later(Duration timeout, UniqueFunction<void(bool)> answer) {
  Duration wait;
  {
    std::lock_guard lock(store_->mutex_);
    wait = store_->faults_.delay;
    if (store_->faults_.jitter > Duration()) {
      wait = wait + Duration::Micros(static_cast<int64_t>(store_->rng_.Exponential(
                        static_cast<double>(store_->faults_.jitter.micros()))));
    }
  }
  const bool late = wait > timeout;
  Task task = scope_.Bind([late, answer = std::move(answer)]() mutable { answer(late); });
  if (late) {
    loop_->After(timeout, std::move(task));
  } else if (wait > Duration()) {
    loop_->After(wait, std::move(task));
  } else {
    loop_->Post(std::move(task));
  }
}

bool MemoryClient::ReadOneLocked(ChunkRead& read) {
  MemoryFaults& faults = store_->faults_;
  read.length = std::max(read.length, read.have);
  if (faults.unavailable || store_->Draw(faults.miss)) return read.length >= read.want;
  const auto it = store_->entries_.find(read.key);
  if (it == store_->entries_.end()) return read.length >= read.want;
  uint64_t length = std::min<uint64_t>(it->second.value.size(), read.capacity);
  if (length > 0 && store_->Draw(faults.short_read)) length = store_->rng_.Below(length);
  if (length > read.have) {
    const uint64_t added = length - read.have;
    std::memcpy(read.destination + read.have, it->second.value.data() + read.have, added);
    read.crc = Crc32cExtend(read.crc, read.destination + read.have, added);
    read.length = static_cast<uint32_t>(length);
    counters_.bytes_read += added;
    counters_.useful_bytes += added;
  }
  return read.length >= read.want;
}

bool MemoryClient::DelayedLocked() const {
  return store_->faults_.delay > Duration() || store_->faults_.jitter > Duration();
}

bool MemoryClient::TryReadChunks(std::span<ChunkRead> reads) {
  std::lock_guard lock(store_->mutex_);
  if (DelayedLocked()) return false;
  bool all = true;
  for (ChunkRead& read : reads) {
    const bool hit = ReadOneLocked(read);
    all = all && hit;
    if (hit) {
      ++counters_.reads;
      ++counters_.hits;
    } else if (read.length > read.have) {
      // As the port has it: a read that is not finished starts anew in ReadChunks.
      read.crc = Crc32c(std::string_view(read.destination, read.have));
      read.length = read.have;
    }
  }
  return all;
}

void MemoryClient::ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                              Callback<void()> done) {
  Later(timeout, [this, reads, mode, done = std::move(done)](bool late) mutable {
    {
      std::lock_guard lock(store_->mutex_);
      for (ChunkRead& read : reads) {
        if (read.length >= read.want) continue;
        CountBegun(mode, counters_);
        if (late) {
          read.length = read.have;
          read.late = true;
        } else {
          ReadOneLocked(read);
        }
        CountEnded(read, mode, counters_);
      }
    }
    done();
  });
}

bool MemoryClient::ReadValuesLocked(std::span<const ValueRead> reads, Values& values) {
  if (store_->faults_.unavailable) return false;
  values.assign(reads.size(), {});
  for (size_t i = 0; i < reads.size(); ++i) {
    const auto version = store_->versions_.find(reads[i].key);
    values[i].complete = true;
    seen_versions_[reads[i].key] = version == store_->versions_.end() ? 0 : version->second;
    const auto it = store_->entries_.find(reads[i].key);
    if (it == store_->entries_.end() || store_->Draw(store_->faults_.miss)) continue;
    std::string& seen = seen_values_[reads[i].key];
    MergeInto(reads[i].rule, seen, it->second.value);
    values[i].bytes = seen;
  }
  return true;
}

bool MemoryClient::TryReadValues(std::span<const ValueRead> reads, Values& values) {
  std::lock_guard lock(store_->mutex_);
  if (DelayedLocked() || !ReadValuesLocked(reads, values)) return false;
  counters_.value_reads += reads.size();
  return true;
}

void MemoryClient::ReadValues(std::vector<ValueRead> reads, Duration timeout,
                              Callback<void(Result<Values>)> done) {
  Later(timeout, [this, reads = std::move(reads), done = std::move(done)](bool late) mutable {
    Values values;
    bool read = false;
    {
      std::lock_guard lock(store_->mutex_);
      counters_.value_reads += reads.size();
      read = !late && ReadValuesLocked(reads, values);
    }
    if (read) {
      done(std::move(values));
    } else {
      done(UnavailableError("the in-process cache answers no value reads at the moment"));
    }
  });
}

void MemoryClient::Mutate(std::vector<Mutation> mutations, Duration timeout,
                          Callback<void(Status)> done) {
  counters_.mutations += mutations.size();
  Later(timeout, [this, call = drains_.Begin(), mutations = std::move(mutations),
                  done = std::move(done)](bool late) mutable {
    drains_.End(call);
    uint64_t failed = 0, mismatches = 0, refused = 0;
    {
      std::lock_guard lock(store_->mutex_);
      for (const Mutation& mutation : mutations) {
        if (late || store_->faults_.unavailable || store_->Draw(store_->faults_.failed_write)) {
          ++failed;
          continue;
        }
        const MutationResult result = store_->ApplyLocked(mutation);
        mismatches += result == MutationResult::kMismatch ? 1 : 0;
        refused += result == MutationResult::kRefused ? 1 : 0;
        if (store_->Draw(store_->faults_.lost_write) && store_->entries_.erase(mutation.key) > 0) {
          store_->ChangedLocked(mutation.key);
        }
      }
    }
    counters_.mutation_failures += failed + refused;
    counters_.write_mismatches += mismatches;
    if (mismatches > 0) {
      done(DataLossError(std::to_string(mismatches) +
                         " keys hold bytes that contradict those written; both were dropped"));
    } else if (refused > 0) {
      done(ResourceExhaustedError("the cache refused " + std::to_string(refused) + " keys"));
    } else if (failed > 0) {
      done(UnavailableError(std::to_string(failed) + " of " + std::to_string(mutations.size()) +
                            " keys were not stored"));
    } else {
      done(OkStatus());
    }
  });
}

void MemoryClient::Drain(Callback<void()> done) { drains_.Drain(std::move(done)); }

uint64_t MemoryClient::WatchValue(Key key, Duration timeout, Callback<void(bool)> notify) {
  ++counters_.watches;
  std::lock_guard lock(store_->mutex_);
  const uint64_t id = store_->next_watch_++;
  Watch& watch = watches_.try_emplace(id, *loop_).first->second;
  watch.key = key;
  watch.notify = std::move(notify);
  const auto post = [&](bool watched) {
    loop_->Post(scope_.Bind([this, id, watched] { Notify(id, watched); }));
  };
  if (store_->faults_.refuse_watches || store_->faults_.refuse_watches_of == key) {
    ++counters_.watch_refusals;
    post(false);
    return id;
  }
  const auto version = store_->versions_.find(key);
  const uint64_t now = version == store_->versions_.end() ? 0 : version->second;
  const auto seen = seen_versions_.find(key);
  if (now != (seen == seen_versions_.end() ? 0 : seen->second)) {
    post(true);
    return id;
  }
  store_->watchers_[key].push_back({id, loop_, scope_.Bind([this, id] { Notify(id, true); })});
  watch.timer.After(timeout, scope_.Bind([this, id] { Notify(id, true); }));
  return id;
}

void MemoryClient::Notify(uint64_t id, bool watched) {
  const auto it = watches_.find(id);
  if (it == watches_.end()) return;
  if (watched) ++counters_.notifications;
  Callback<void(bool)> notify = std::move(it->second.notify);
  CancelWatch(id);
  notify(watched);
}

void MemoryClient::CancelWatch(uint64_t id) {
  const auto it = watches_.find(id);
  if (it == watches_.end()) return;
  {
    std::lock_guard lock(store_->mutex_);
    const auto watchers = store_->watchers_.find(it->second.key);
    if (watchers != store_->watchers_.end()) {
      std::erase_if(watchers->second,
                    [&](const MemoryStore::Watcher& watcher) { return watcher.id == id; });
      if (watchers->second.empty()) store_->watchers_.erase(watchers);
    }
  }
  watches_.erase(it);
}

}  // namespace tailcast::cache
