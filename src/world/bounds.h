// Design rules "everything is bounded", "no server on the read path" and "nothing silent", as far
// as a whole deployment shows them.
//
//   CheckBounds(deployment)                  // at any time: "", or which rule does not hold where
//   QuietWatch quiet(deployment);            // at the end, when nothing more is to be done
//   for (int i = 0; i < QuietWatch::kSamples; ++i) { run for kApart; quiet.Sample(); }
//   quiet.Grown()                            // "", or what is still under way or grows
#pragma once

#include <string>
#include <vector>

#include "tailcast/world/deployment.h"

namespace tailcast::world {

// What a sender may have queued on a stream: a reader's window and the message that passes it.
inline constexpr size_t kQueuedBytesMax = 4u << 20;

//   bounded       nobody has queued more on a stream than kQueuedBytesMax
//   longer wins   no cache server has seen two values of a key that contradict each other
//   no server on the read path   a cache server was asked for values by a call only if a bucket of
//                 it has overflowed
std::string CheckBounds(Deployment& deployment);

// Finds what grows by more than four events, or one connection, in the six seconds between the
// samples that are compared.
class QuietWatch {
 public:
  static constexpr int kSamples = 6;
  static constexpr size_t kCompared = 2;  // the first and the last ones
  static constexpr Duration kApart = Duration::Seconds(2);

  // `deployment` outlives it.
  explicit QuietWatch(Deployment& deployment) : deployment_(deployment) {}
  void Sample();
  std::string Grown() const;

 private:
  Deployment& deployment_;
  struct Load {
    size_t waiting = 0;      // events
    size_t connections = 0;  // that exist
    size_t kept = 0;         // messages that a cut has stopped
  };
  std::vector<Load> samples_;
};

}  // namespace tailcast::world
