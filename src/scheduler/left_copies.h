// The copies that this cell keeps of streams whose copy tree it has left: when they are to be given
// back. A cell is left out of a tree by an operator (`tailcast stream reroute --without`), or was a
// relay that is needed no more; who is a destination keeps its files, whatever the tree.
//
//             in the tree, or a destination
//      ┌──────────────────────────────────────────────────────────┐
//      ▼                                                          │
//   nothing ── left, and files are there ──▶ resting ── 10 min ──▶ going ── gone ──▶ nothing
//                                             ▲   │
//                                             └───┘ a file was opened, the change is over
//
// As long as the change of the tree is under way the old one may still feed this cell. Whoever is
// to say that it is over may die before it does, so that the rest is a day long then, and not
// endless.
//
// The rest is for those who were slow to hear, and for operators who change their minds: a cell
// that comes back copies again what has gone. It counts the time that this scheduler runs.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

// Whether nothing of the stream is to be in the cell any more, as far as its configuration says.
bool HasLeft(const v1::StreamConfig& stream, const std::string& cell);

class LeftCopies {
 public:
  static constexpr Duration kRest = Duration::Seconds(600);
  static constexpr Duration kRestWhileChanging = Duration::Seconds(86'400);

  LeftCopies(std::string cell, Duration rest) : cell_(std::move(cell)), rest_(rest) {}

  // As the stream is configured now. True: its files were going, and are to stay from now on.
  bool OnStream(const v1::StreamConfig& stream);
  void OnStreamRemoved(const stream::StreamId& stream) { left_.erase(stream); }
  // Somebody opened a file of it.
  void OnNotice(const stream::StreamId& stream);
  // Message files of the stream are there.
  void OnFiles(const stream::StreamId& stream);
  // So much time passed. What is to go from now on: its number of shards.
  std::vector<std::pair<stream::StreamId, int32_t>> OnTime(Duration passed);
  // Files of it that are there need not be a moment later.
  bool IsGoing(const stream::StreamId& stream) const;
  // Nothing is left of it.
  void OnGone(const stream::StreamId& stream);

 private:
  struct Left {
    int32_t shards = 0;
    bool files = false;
    bool going = false;
    bool changing = false;
    Duration rested;
  };
  const std::string cell_;
  const Duration rest_;
  std::map<stream::StreamId, Left> left_;
};

}  // namespace tailcast::scheduler
