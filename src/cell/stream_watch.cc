#include "tailcast/cell/stream_watch.h"

#include <string>
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
  bool lost = false;
  if (std::exchange(registry_id_, view.registry_id()) != view.registry_id()) {
    lost = std::exchange(seen_, false) && source_;
  }
  bool again = false;
  for (const v1::StreamConfig& known : view.streams()) {
    if (known.name() != stream_.name) continue;
    if (stream::IdOf(known) == stream_) {
      seen_ = seen_ever_ = true;
      source_ = known.source() == view.cell();
      return;
    }
    again = true;
  }
  if (!deleted_) return;
  const std::string stream = "stream '" + stream_.name + "' ";
  if (lost) {
    std::exchange(deleted_,
                  {})(NotFoundError(stream + "is not known any more in cell " + view.cell() +
                                    ", its source: the registry there was lost and begun anew"));
  } else if (seen_ || (seen_ever_ && again)) {
    std::exchange(deleted_, {})(
        NotFoundError(stream + "was deleted" + (again ? ", and created again since" : "")));
  }
}

}  // namespace tailcast::cell
