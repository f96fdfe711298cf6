// Distribution of non-negative integers, usually latencies in microseconds, at about 1 % precision
// over the whole range of int64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tailcast {

// Log-linear buckets: each power of two is cut into 64 equal parts, so that a bucket is at most
// 1/64 of its value wide and its middle at most 0.8 % off; values below 128 are exact. Memory grows
// with the largest value, to at most 30 KB. Not thread-safe: one per thread, then Merge.
class Histogram {
 public:
  // Negative values count as 0 (a clock that stepped back must not break a report).
  void Record(int64_t value) { RecordMany(value, 1); }
  void RecordMany(int64_t value, uint64_t count);
  void Merge(const Histogram& other);
  void Clear();

  uint64_t Count() const { return count_; }
  // Exact. 0 if empty.
  int64_t Min() const { return count_ == 0 ? 0 : min_; }
  int64_t Max() const { return max_; }
  double Mean() const;
  double Sum() const { return sum_; }
  // The value below or at which `percent` of the values lie (nearest rank), in [0, 100]; within
  // 1 % of the exact one, and within [Min, Max]. 0 if empty.
  int64_t Percentile(double percent) const;
  // How many values are at most `value`, up to the width of its bucket.
  uint64_t CountAtMost(int64_t value) const;

  // {"count":3,"mean":2.0,"min":1,"p50":2,"p90":3,"p99":3,"p999":3,"max":3}
  std::string ToJson() const;

 private:
  static size_t BucketOf(int64_t value);
  static int64_t MiddleOf(size_t bucket);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  int64_t min_ = INT64_MAX;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace tailcast
