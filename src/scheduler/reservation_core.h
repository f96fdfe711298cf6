// The reservation of a name: every other cell is asked, and each of them has to agree before the
// deadline (spec Catalogue: Agree, Create).
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::scheduler {

class ReservationCore {
 public:
  // `stream`: its name, for errors.
  ReservationCore(std::string stream, const std::vector<std::string>& cells, MonotonicTime deadline)
      : stream_(std::move(stream)), deadline_(deadline), asked_(cells.begin(), cells.end()) {}

  // Every cell agreed, or one never will, or the time is up.
  bool done() const { return asked_.empty() || !refused_.ok(); }
  //   Ok, once done(): all agree. AlreadyExists: the name is another's. Unavailable: a cell, which
  //   it names, did not answer or could not say yes.
  const Status& outcome() const { return refused_; }

  // What a cell answered (AskName of copy.proto), or why it did not. True: ask it again after a
  // while.
  bool OnAnswer(MonotonicTime now, const std::string& cell, const Status& answer) {
    if (done() || !asked_.contains(cell)) return false;
    if (answer.ok()) {
      asked_.erase(cell);
      return false;
    }
    if (IsAlreadyExists(answer) || IsInvalidArgument(answer)) {
      refused_ = answer.WithContext("cell '" + cell + "'");
      return false;
    }
    if (now < deadline_) return true;
    refused_ = UnavailableError("stream '" + stream_ + "' is not created: cell '" + cell +
                                "' does not agree to its name (" + answer.message() +
                                "); every cell of the topology has to. Try again when it can, or "
                                "take a cell that is gone for good out of the topology");
    return false;
  }

 private:
  const std::string stream_;
  const MonotonicTime deadline_;
  std::set<std::string> asked_;  // have not agreed yet
  Status refused_;
};

}  // namespace tailcast::scheduler
