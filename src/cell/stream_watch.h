// Tells a user of a stream that it was deleted: the view of its cell showed it, and does not any
// more.
//
// A cell whose registry was lost and begun anew shows no stream at first, and is told by the cells
// above it which there are: until then nothing was deleted. Only in a stream's source nobody does.
//
// Threads: those of the client.
#pragma once

#include <cstdint>

#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {

class StreamWatch {
 public:
  // `client` outlives it. `deleted` at most once, with NotFound; inside the client's change of the
  // view, or here, if it is so already.
  StreamWatch(CellClient& client, stream::StreamId stream, Callback<void(Status)> deleted);
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

 private:
  void OnView(const CellView& view);

  const stream::StreamId stream_;
  Callback<void(Status)> deleted_;
  uint64_t registry_id_ = 0;  // of the last view
  bool seen_ = false;         // in that registry: a cell may hear of it later than its user
  bool seen_ever_ = false;
  bool source_ = false;  // it is the cell's own, as it was seen last
  Scope scope_;
};

}  // namespace tailcast::cell
