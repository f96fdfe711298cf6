#include "tailcast/reader/length_poller.h"

#include <utility>

namespace tailcast::reader {

LengthPoller::LengthPoller(const stream::CellPorts& ports, const ReaderOptions& options,
                           Counters& counters, Hooks hooks)
    : ports_(ports),
      options_(options),
      counters_(counters),
      hooks_(std::move(hooks)),
      core_({options.doorbells, options.doorbell_timeout}),
      timer_(*ports.loop) {}

LengthPoller::~LengthPoller() {
  for (const auto& [key, watch] : watches_) ports_.metadata_cache->CancelWatch(watch.id);
}

void LengthPoller::Add(uint64_t operation, cache::Key group) {
  core_.Add(operation, group);
  ArmTimer();
  if (read_posted_) return;
  read_posted_ = true;
  ports_.loop->Post(scope_.Bind([this] {
    read_posted_ = false;
    Read(core_.NextRead(ports_.loop->Now()));
  }));
}

void LengthPoller::Remove(uint64_t operation, cache::Key group) {
  if (!core_.Remove(operation, group)) return;
  const auto it = watches_.find(group);
  if (it == watches_.end()) return;
  ports_.metadata_cache->CancelWatch(it->second.id);
  watches_.erase(it);
}

void LengthPoller::ArmTimer() {
  if (timer_.armed() || core_.empty()) return;
  timer_.After(options_.poll_interval, scope_.Bind([this] {
    const MonotonicTime now = ports_.loop->Now();
    hooks_.on_tick(now);
    Read(core_.OnTick(now));
    ArmTimer();
  }));
}

void LengthPoller::Read(std::vector<cache::Key> keys) {
  if (keys.empty()) return;
  std::vector<cache::Client::ValueRead> reads;
  for (const cache::Key& key : keys) reads.push_back({key, cache::MergeRule::kMaxLanes});
  counters_.polls.Add();
  ports_.metadata_cache->ReadValues(
      std::move(reads), options_.cache_timeout,
      scope_.Bind([this, keys = std::move(keys)](const Result<cache::Values>& values) {
        core_.OnRead();
        if (!values.ok()) counters_.poll_errors.Add();
        for (size_t i = 0; values.ok() && i < keys.size(); ++i) {
          if (const cache::ValueAnswer& value = (*values)[i]; value.has_value()) {
            for (const uint64_t operation : core_.OperationsOf(keys[i])) {
              hooks_.on_value(operation, *value);
            }
          }
          if (core_.TakeWatch(keys[i])) SetDoorbell(keys[i]);
        }
        Read(core_.NextRead(ports_.loop->Now()));  // what became dirty meanwhile
      }));
}

void LengthPoller::SetDoorbell(cache::Key key) {
  Watch& watch = watches_[key];
  watch.id = ports_.metadata_cache->WatchValue(
      key, options_.doorbell_timeout, watch.scope.Bind([this, key](bool watched) {
        watches_.erase(key);
        core_.OnDoorbell(key, watched);
        if (!watched) {
          counters_.unwatched.Add();
          return;  // the next tick reads it, and tries to watch again
        }
        counters_.notifications.Add();
        Read(core_.NextRead(ports_.loop->Now()));
      }));
}

}  // namespace tailcast::reader
