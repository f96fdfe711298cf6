#include "tailcast/producer/notify.h"

#include <utility>

#include "tailcast/stream/message_ids.h"

namespace tailcast::producer {

void NotifyScheduler(cell::CellClient& cell, const Scope& scope, const FileEvent& event,
                     Callback<void(Status)> done) {
  v1::FileNotice notice;
  stream::SetShard(event.file.shard, &notice);
  notice.set_stem(event.file.stem.ToString());
  if (event.seal) {
    notice.set_sealed(true);
    notice.set_sealed_data_length(event.seal->length[0]);
    notice.set_sealed_index_length(event.seal->length[1]);
  }
  cell.NotifyFile(notice,
                  scope.Bind([done = std::move(done)](Result<v1::FileNoticeReply> reply) mutable {
                    done(reply.status());
                  }));
}

}  // namespace tailcast::producer
