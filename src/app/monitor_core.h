// Whether what a cell's consumers get is right: `tailcast monitor`.
//
// Messages come from the cell that is watched, and from the stream's source. Each shard's have to
// follow one another, and those of the same number have to be the same. The two are never at the
// same place, so what only one has given so far is remembered, up to kWindowMessages of a shard.
//
// A core: no I/O, no clock, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tailcast/base/hash.h"
#include "tailcast/consumer/message.h"

namespace tailcast::app {

class MonitorCore {
 public:
  static constexpr size_t kWindowMessages = 1 << 16;
  enum class From : uint8_t { kWatched = 0, kSource = 1 };
  struct Counts {
    int64_t compared = 0;    // the same in both
    int64_t different = 0;   // of one number, and not the same
    int64_t disorderly = 0;  // not behind the one before
    int64_t uncompared = 0;  // the other one did not give it while it was remembered
  };

  // Returns what is wrong, for people; empty: nothing.
  std::string OnMessage(From from, const consumer::Message& message);
  // It goes on elsewhere: the next message of the shard need not follow.
  void OnSeek(From from, int32_t shard);
  const Counts& counts() const { return counts_; }

 private:
  struct Side {
    bool given = false;
    int64_t next_number = 0, next_byte = 0, time_us = 0;  // if given
    std::map<int64_t, Hash128Value> waiting;              // by number
  };
  struct Shard {
    Side sides[2];
  };
  std::string CheckOrder(Side& side, const consumer::Message& message);
  void Forget(Side& side, int64_t below);

  std::map<int32_t, Shard> shards_;
  Counts counts_;
};

}  // namespace tailcast::app
