// Reads the lengths of all operations' files as length_poll_core.h decides: its timer, its reads,
// its doorbells. No operations, no timer: an idle reader costs nothing. Internal to the module.
//
// Threads: everything on the loop. Its functions may add and remove operations; none destroys it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/reader/counters.h"
#include "tailcast/reader/length_poll_core.h"
#include "tailcast/reader/reader_options.h"
#include "tailcast/stream/ports.h"

namespace tailcast::reader {

class LengthPoller {
 public:
  struct Hooks {
    // Once per poll interval while there are operations, before their lengths are read.
    UniqueFunction<void(MonotonicTime now)> on_tick;
    // The metadata value of the operation's file.
    UniqueFunction<void(uint64_t operation, const std::string& value)> on_value;
  };

  // All outlive it.
  LengthPoller(const stream::CellPorts& ports, const ReaderOptions& options, Counters& counters,
               Hooks hooks);
  ~LengthPoller();
  LengthPoller(const LengthPoller&) = delete;
  LengthPoller& operator=(const LengthPoller&) = delete;

  // The lengths of a new operation are read in a later turn: a new file often has bytes already.
  void Add(uint64_t operation, cache::Key group);
  void Remove(uint64_t operation, cache::Key group);

 private:
  struct Watch {
    uint64_t id = 0;
    Scope scope;
  };
  void ArmTimer();
  void Read(std::vector<cache::Key> keys);
  void SetDoorbell(cache::Key key);

  const stream::CellPorts& ports_;
  const ReaderOptions& options_;
  Counters& counters_;
  Hooks hooks_;
  LengthPollCore core_;
  std::map<cache::Key, Watch> watches_;
  bool read_posted_ = false;
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast::reader
