#include "tailcast/scale/delay.h"

#include <algorithm>
#include <cmath>

namespace tailcast::scale {
namespace {

const size_t kBins = static_cast<size_t>(DelaySpread::kMost / DelaySpread::kBin) + 1;

size_t BinOf(double seconds) {
  return std::min(kBins - 1,
                  static_cast<size_t>(std::lround(std::max(0.0, seconds) / DelaySpread::kBin)));
}

// What lies behind the last bin is in it.
void Clip(std::vector<double>& density) {
  if (density.size() <= kBins) return;
  for (size_t i = kBins; i < density.size(); ++i) density[kBins - 1] += density[i];
  density.resize(kBins);
}

}  // namespace

void DelaySpread::AddConstant(double seconds) {
  density_.insert(density_.begin(), BinOf(seconds), 0.0);
  Clip(density_);
}

void DelaySpread::AddUpTo(double seconds) {
  const size_t width = BinOf(seconds) + 1;
  std::vector<double> sum(density_.size() + width - 1);
  double window = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    if (i < density_.size()) window += density_[i];
    if (i >= width) window -= density_[i - width];
    sum[i] = std::max(0.0, window) / static_cast<double>(width);
  }
  density_ = std::move(sum);
  Clip(density_);
}

void DelaySpread::AddMaybe(double probability, double seconds) {
  DelaySpread later = *this;
  later.AddConstant(seconds);
  density_.resize(std::max(density_.size(), later.density_.size()));
  for (size_t i = 0; i < density_.size(); ++i) {
    const double then = i < later.density_.size() ? later.density_[i] : 0;
    density_[i] = (1 - probability) * density_[i] + probability * then;
  }
}

double DelaySpread::Percentile(double percent) const {
  double sum = 0;
  for (size_t i = 0; i < density_.size(); ++i) {
    sum += density_[i];
    if (sum >= percent / 100 - 1e-9) return static_cast<double>(i) * kBin;
  }
  return static_cast<double>(density_.size() - 1) * kBin;
}

double DelaySpread::Mean() const {
  double sum = 0;
  for (size_t i = 0; i < density_.size(); ++i) sum += density_[i] * static_cast<double>(i) * kBin;
  return sum;
}

DelaySpread PathDelay(const PathTimes& times, const std::vector<double>& links_s) {
  DelaySpread delay;
  delay.AddUpTo(times.flush_s);
  delay.AddConstant(times.publish_s);
  for (const double link_s : links_s) {
    delay.AddUpTo(times.look_s);
    delay.AddConstant(times.hop_s + link_s);
  }
  delay.AddUpTo(times.poll_s);
  delay.AddConstant(times.read_s);
  return delay;
}

}  // namespace tailcast::scale
