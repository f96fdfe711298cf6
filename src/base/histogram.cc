#include "tailcast/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace tailcast {
namespace {
constexpr int kPartBits = 6;
constexpr int64_t kParts = int64_t{1} << kPartBits;
}  // namespace

// Values below 2 * kParts have a bucket each; above, bucket = (power - kPartBits) * kParts + the
// value's kPartBits + 1 leading bits.
size_t Histogram::BucketOf(int64_t value) {
  if (value < 2 * kParts) return static_cast<size_t>(value);
  const int shift = std::bit_width(static_cast<uint64_t>(value)) - 1 - kPartBits;
  return static_cast<size_t>(shift * kParts + (value >> shift));
}

int64_t Histogram::MiddleOf(size_t bucket) {
  const auto b = static_cast<int64_t>(bucket);
  if (b < 2 * kParts) return b;
  const int64_t shift = b / kParts - 1;
  const int64_t low = (b - shift * kParts) << shift;
  return low + ((int64_t{1} << shift) - 1) / 2;
}

void Histogram::RecordMany(int64_t value, uint64_t count) {
  if (count == 0) return;
  value = std::max<int64_t>(value, 0);
  const size_t bucket = BucketOf(value);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  counts_[bucket] += count;
  count_ += count;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value) * static_cast<double>(count);
}

void Histogram::Merge(const Histogram& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void Histogram::Clear() { *this = Histogram(); }

double Histogram::Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

int64_t Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double exact = std::ceil(percent / 100 * static_cast<double>(count_));
  const auto rank = static_cast<uint64_t>(std::clamp(exact, 1.0, static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::clamp(MiddleOf(i), min_, max_);
  }
  return max_;
}

uint64_t Histogram::CountAtMost(int64_t value) const {
  if (value < 0) return 0;
  const size_t last = std::min(BucketOf(value) + 1, counts_.size());
  uint64_t seen = 0;
  for (size_t i = 0; i < last; ++i) seen += counts_[i];
  return seen;
}

std::string Histogram::ToJson() const {
  char text[256];
  std::snprintf(text, sizeof text,
                "{\"count\":%llu,\"mean\":%.1f,\"min\":%lld,\"p50\":%lld,\"p90\":%lld,"
                "\"p99\":%lld,\"p999\":%lld,\"max\":%lld}",
                static_cast<unsigned long long>(count_), Mean(), static_cast<long long>(Min()),
                static_cast<long long>(Percentile(50)), static_cast<long long>(Percentile(90)),
                static_cast<long long>(Percentile(99)), static_cast<long long>(Percentile(99.9)),
                static_cast<long long>(Max()));
  return text;
}

}  // namespace tailcast
