// Whether the two files of a closed message file are what their check sums say: `tailcast repair`.
//
// A core: no I/O, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/stream/index_record.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {

class PairCheck {
 public:
  // `index`: all that there is of the index file.
  PairCheck(const stream::Seal& seal, std::string_view index);
  // The next bytes of the data file, from its beginning on.
  void OnData(std::string_view bytes);
  // No more bytes come: they end, or can't be read, which `error` says.
  void OnEnd(std::string_view error);

  // What is wrong; empty: nothing so far.
  const std::string& damage() const { return damage_; }
  // Nothing more is needed: all is well, or it is known what is not.
  bool done() const { return !damage_.empty() || next_ == records_.size(); }

 private:
  std::vector<stream::IndexRecord> records_;
  size_t next_ = 0;  // of records_, whose payload is checked next
  std::string data_;
  int64_t data_at_ = 0;  // where data_ begins in the file
  std::string damage_;
};

}  // namespace tailcast::app
