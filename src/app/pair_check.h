// Whether the two files of a message file are what their check sums say: `tailcast repair`.
//
// A core: no I/O, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/stream/index_record.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {

class PairCheck {
 public:
  // `seal`: of a closed file; nullopt: the file is still written, and all that is there counts.
  // `index`: all that there is of the index file, read before its data.
  PairCheck(const std::optional<stream::Seal>& seal, std::string_view index);
  // The next bytes of the data file, from its beginning on.
  void OnData(std::string_view bytes);
  // No more bytes come: they end.
  void OnEnd();

  // Which bytes that are there fail their check sums; empty: none so far.
  const std::string& damage() const { return damage_; }
  // Where it ends before its seal, or its index; empty: it does not, as far as was looked. Below a
  // stream's source that is a copy which still runs, or which the cell's scheduler sees to.
  const std::string& missing() const { return missing_; }
  // Nothing more is needed.
  bool done() const { return !damage_.empty() || next_ == records_.size(); }

 private:
  std::vector<stream::IndexRecord> records_;
  size_t next_ = 0;  // of records_, whose payload is checked next
  std::string data_;
  int64_t data_at_ = 0;  // where data_ begins in the file
  std::string damage_, missing_;
};

}  // namespace tailcast::app
