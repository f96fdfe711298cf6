// Which requests to a store wait too long, when each is given up, and what is told to people: that
// the store does not answer, once, and that it answers again, once. Without I/O; ceph_objects.cc
// does what it says.
//
//   sent ---> answered in time ---------------------------> its caller gets the answer
//     |
//     | slow_after: the store is *stalled*; said, and its cause is looked for (by a new connection)
//     |
//     +-----> its deadline passes: given up -> its caller gets kUnknown; what was sent may be done
//                                              later, so it is never called failed
//
// The stall is over when an answer comes (a late one counts) and no request is slow any more. A
// cause is said when it is found, and again only when it is another. When a new connection comes
// about where none did before, or the stall is old, it is taken instead of the silent one: librados
// does not come back after a key that was refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"

namespace tailcast::storage {

class SlowRequestsCore {
 public:
  struct Options {
    Duration slow_after = Duration::Seconds(2);
    // While it is stalled, the cause is looked for this often.
    Duration look_every = Duration::Seconds(10);
    // A connection that is silent for so long is replaced.
    Duration replace_after = Duration::Seconds(30);
  };
  struct Effects {
    std::vector<uint64_t> given_up;  // in the order in which they were sent
    bool look = false;               // for the cause; then OnCause
    bool replace = false;            // by the connection that the look made
    std::string warn;                // to be logged, if not empty
    std::string inform;
  };

  // `store`: its name, for people.
  SlowRequestsCore(std::string store, Options options);

  // `request` counts up. `what`: for people.
  void OnSent(MonotonicTime now, uint64_t request, MonotonicTime deadline, std::string what);
  // The store has answered, whatever it said. False: the request was given up before.
  bool OnAnswered(MonotonicTime now, uint64_t request, Effects& out);
  // There was no answer, as the store's own library says.
  bool OnSilence(uint64_t request);
  void OnTime(MonotonicTime now, Effects& out);
  // What the look found. Empty: a new connection came about.
  void OnCause(MonotonicTime now, std::string cause, Effects& out);

  // When OnTime has something to do.
  std::optional<MonotonicTime> next() const;
  bool stalled() const { return stalled_.has_value(); }
  // Of this stall; empty: not known.
  const std::string& cause() const { return cause_; }
  size_t waiting() const { return requests_.size(); }

 private:
  struct Request {
    MonotonicTime sent;
    MonotonicTime deadline;
    std::string what;
  };
  bool Forget(uint64_t request);

  const std::string store_;
  const Options options_;
  std::map<uint64_t, Request> requests_;  // the oldest first
  std::set<std::pair<MonotonicTime, uint64_t>> deadlines_;
  std::optional<MonotonicTime> stalled_;  // since its first slow request was sent
  MonotonicTime look_at_;                 // while it is stalled
  size_t given_up_ = 0;                   // since then
  std::string cause_;
  MonotonicTime silent_since_;  // while it is stalled: of this connection
};

}  // namespace tailcast::storage
