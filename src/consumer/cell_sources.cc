#include "tailcast/consumer/cell_sources.h"

#include <algorithm>
#include <utility>

namespace tailcast::consumer {

using stream::Part;

CellSources::CellSources(const stream::CellPorts& ports, const stream::FileId& file,
                         const LengthsCore& lengths, Duration cache_timeout,
                         stream::FileSteps steps)
    : ports_(ports),
      file_(file),
      lengths_(lengths),
      cache_timeout_(cache_timeout),
      steps_(std::move(steps)) {
  OnChunkSize();
}

void CellSources::OnChunkSize() {
  for (Part part : {Part::kData, Part::kIndex}) {
    readers_[static_cast<int>(part)].emplace(
        ports_, file_, part, lengths_.chunk_size(),
        stream::RangeReader::Options{.cache_timeout = cache_timeout_, .steps = steps_});
  }
}

SourceLengths CellSources::CellSource::lengths(Part part) const {
  return with_cache_ ? cell_.lengths_.cache(part) : cell_.lengths_.primary(part);
}

int64_t Counters::*CellSources::CellSource::fallback() const {
  if (with_cache_) return &Counters::fallback_missing_chunk;
  return cell_.lengths_.metadata_known() ? &Counters::fallback_delayed
                                         : &Counters::fallback_no_metadata;
}

std::optional<stream::RangeResult> CellSources::CellSource::Read(
    Part part, stream::RangeRequest request, Callback<void(stream::RangeResult)> done) {
  const SourceLengths in_cache = with_cache_ ? cell_.lengths_.cache(part) : SourceLengths();
  const int64_t in_primary = request.ahead ? 0 : cell_.lengths_.primary(part).known;
  request.cache_limit =
      std::min(request.cache_limit, request.ahead ? in_cache.perhaps : in_cache.known);
  request.primary_limit = std::min(request.primary_limit, in_primary);
  return cell_.reader(part).Read(request, std::move(done));
}

}  // namespace tailcast::consumer
