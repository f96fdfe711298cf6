#include "tailcast/storage/fake_disk.h"

#include <utility>

#include "tailcast/base/crc32c.h"

namespace tailcast::storage {

Duration FakeLatency::Draw(Rng& rng) const {
  double us = static_cast<double>(base.micros());
  if (mean_extra.micros() > 0) us += rng.Exponential(static_cast<double>(mean_extra.micros()));
  if (tail_rate > 0 && rng.Chance(tail_rate)) {
    us += rng.Exponential(static_cast<double>(tail_mean.micros()));
  }
  return Duration::Micros(static_cast<int64_t>(us));
}

FakeDiskOptions FakeDiskOptions::Swarm(Rng& rng) {
  const auto exists = [&] { return rng.Chance(0.5); };
  const auto rate = [&](double max) { return exists() ? rng.Unit() * max : 0.0; };
  const auto latency = [&] {
    FakeLatency l;
    l.base = Duration::Micros(rng.Between(10, exists() ? 5'000 : 500));
    l.mean_extra = Duration::Micros(rng.Between(0, exists() ? 10'000 : 200));
    l.tail_rate = rate(0.05);
    l.tail_mean = Duration::Millis(rng.Between(1, 1000));
    return l;
  };
  FakeDiskOptions o;
  o.request = latency();
  o.answer = latency();
  o.append_unknown_rate = rate(0.02);
  o.append_io_error_rate = rate(0.02);
  o.open_error_rate = rate(0.05);
  o.read_error_rate = rate(0.05);
  o.short_read_rate = rate(0.5);
  if (exists()) o.size_lag_max = Duration::Micros(rng.Between(0, 50'000));
  o.answer_timeout = Duration::Millis(rng.Between(50, 5'000));
  return o;
}

FakeDisk::FakeDisk(EventLoop* loop, uint64_t seed, FakeDiskOptions options)
    : loop_(loop), rng_(seed), options_(options) {}

void FakeDisk::AtDisk(Duration delay, UniqueFunction<void()> landing) {
  loop_->After(delay, scope_.Bind([this, landing = std::move(landing)]() mutable {
    if (frozen_) {
      held_.push_back(std::move(landing));
    } else {
      landing();
    }
  }));
}

void FakeDisk::Land(FakeImage::Append& append) {
  image_.Land(append, Room(), loop_->Now());
  if (!trace_) return;
  trace_(Crc32c(append.file->name));
  trace_(Crc32cExtend(static_cast<uint32_t>(append.outcome), append.bytes.data(),
                      append.bytes.size()));
}

void FakeDisk::Thaw() {
  frozen_ = false;
  for (UniqueFunction<void()>& landing : std::exchange(held_, {})) landing();
}

void FakeDisk::PowerLoss() {
  ++counters_.power_losses;
  ++life_;
  image_.LosePower(Room(), loop_->Now(), rng_);
}

Result<std::string> FakeDisk::Peek(const std::string& dir, const std::string& name) const {
  TAILCAST_ASSIGN_OR_RETURN(const std::shared_ptr<FakeImage::File> file, image_.Find(dir, name));
  return file->physical.substr(0, static_cast<size_t>(file->committed));
}

int64_t FakeDisk::PeekAcknowledged(const std::string& dir, const std::string& name) const {
  const auto file = image_.Find(dir, name);
  return file.ok() ? (*file)->acknowledged : 0;
}

}  // namespace tailcast::storage
