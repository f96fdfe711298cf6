#include "tailcast/cell/stream_watch.h"

#include <utility>

#include "tailcast/stream/message_ids.h"

namespace tailcast::cell {

StreamWatch::StreamWatch(CellClient& client, stream::StreamId stream,
                         Callback<void(Status)> deleted)
    : stream_(std::move(stream)), deleted_(std::move(deleted)) {
  client.SetOnChange(scope_.Bind([this](const CellView& view) { OnView(view); }));
  OnView(client.view());
}

void StreamWatch::OnView(const CellView& view) {
  bool again = false;
  for (const v1::StreamConfig& known : view.streams()) {
    if (known.name() != stream_.name) continue;
    if (stream::IdOf(known) == stream_) {
      seen_ = true;
      return;
    }
    again = true;
  }
  if (!seen_ || !deleted_) return;
  std::exchange(deleted_, {})(NotFoundError("stream '" + stream_.name + "' was deleted" +
                                            (again ? ", and created again since" : "")));
}

}  // namespace tailcast::cell
