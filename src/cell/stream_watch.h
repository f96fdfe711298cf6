// Tells a user of a stream that it was deleted: the view of its cell showed it, and does not any
// more.
//
// Threads: those of the client.
#pragma once

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
  bool seen_ = false;  // a cell may hear of it later than its user
  Scope scope_;
};

}  // namespace tailcast::cell
