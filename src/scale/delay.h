// How long a message takes, as the sum of what it waits for: a distribution that stages are added
// to, each independent of the others.
#pragma once

#include <vector>

namespace tailcast::scale {

// In bins of kBin seconds, from 0 to kMost; what is longer counts as kMost.
class DelaySpread {
 public:
  static constexpr double kBin = 0.0005;
  static constexpr double kMost = 60;

  DelaySpread() : density_{1} {}
  void AddConstant(double seconds);
  // Anything between 0 and `seconds`: what begins every so often.
  void AddUpTo(double seconds);
  // With this probability so much more, once.
  void AddMaybe(double probability, double seconds);
  double Percentile(double percent) const;  // seconds
  double Mean() const;

 private:
  std::vector<double> density_;  // sums to 1; bins behind the last are 0
};

// The path of a message through `hops` cells to a consumer's hand.
struct PathTimes {
  double flush_s = 0.1;  // a producer's flushes, apart
  double publish_s = 0;  // a flush, until its lengths are in the cell's cache
  double look_s = 0.05;  // a reader's looks at lengths, apart; 0: a doorbell
  double hop_s = 0;      // a hop's own work; its link comes to it
  double poll_s = 0.1;   // a consumer's looks at lengths, apart; 0: a doorbell
  double read_s = 0;     // a consumer's reads of lengths and chunks
};
DelaySpread PathDelay(const PathTimes& times, const std::vector<double>& links_s);

}  // namespace tailcast::scale
