// The sources of an open file that the consumer's own cell has: its cache, where what is missing is
// filled from the primary layer in the same read (one combined read, paper Fig 6), unless it was
// asked for together with what nobody said is there; and its primary layer alone. Both read through
// one stream::RangeReader for each part, and know of the lengths what LengthsCore knows.
//
// Threads: the loop's.
#pragma once

#include <optional>
#include <string_view>

#include "tailcast/base/callback.h"
#include "tailcast/consumer/lengths_core.h"
#include "tailcast/consumer/source.h"
#include "tailcast/stream/file_steps.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/ports.h"
#include "tailcast/stream/range_reader.h"

namespace tailcast::consumer {

class CellSources {
 public:
  // `lengths` outlives this. `steps` is of the consumer that reads.
  CellSources(const stream::CellPorts& ports, const stream::FileId& file,
              const LengthsCore& lengths, Duration cache_timeout, stream::FileSteps steps);
  CellSources(const CellSources&) = delete;
  CellSources& operator=(const CellSources&) = delete;

  Source& cache() { return cache_; }
  Source& primary() { return primary_; }

  // The chunk size of `lengths` became another: answers that are under way are dropped.
  void OnChunkSize();
  // As stream::RangeReader::PrimarySize.
  void AskPrimaryLength(stream::Part part, Callback<void(Result<storage::FileSize>)> done) {
    reader(part).PrimarySize(std::move(done));
  }

 private:
  class CellSource : public Source {
   public:
    CellSource(CellSources& cell, bool with_cache) : cell_(cell), with_cache_(with_cache) {}
    std::string_view name() const override {
      return with_cache_ ? "the cell's cache" : "the cell's primary layer";
    }
    SourceLengths lengths(stream::Part part) const override;
    int64_t Counters::*fallback() const override;
    std::optional<stream::RangeResult> Read(stream::Part part, stream::RangeRequest request,
                                            Callback<void(stream::RangeResult)> done) override;

   private:
    CellSources& cell_;
    const bool with_cache_;
  };

  stream::RangeReader& reader(stream::Part part) { return *readers_[static_cast<int>(part)]; }

  const stream::CellPorts ports_;
  const stream::FileId file_;
  const LengthsCore& lengths_;
  const Duration cache_timeout_;
  const stream::FileSteps steps_;
  std::optional<stream::RangeReader> readers_[stream::kParts];
  CellSource cache_{*this, true};
  CellSource primary_{*this, false};
};

}  // namespace tailcast::consumer
