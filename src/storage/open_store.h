// The one place that knows which drivers of the storage port there are.
#pragma once

#include <memory>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/step_log.h"
#include "tailcast/storage/store.h"
#include "tailcast/storage/store_url.h"

namespace tailcast::storage {

// Opens what `url` names. Checks that it is there and can be used, and blocks for at most 5 s.
// `loop` outlives the store. `steps`: null is no log.
// The environment's TAILCAST_CEPH_CONF and TAILCAST_CEPH_USER are taken instead of the URL's.
//   posix: as PosixStore::Open; ceph: as CephObjects::Connect. The message begins with the URL.
Result<std::unique_ptr<Store>> OpenStore(EventLoop* loop, const StoreUrl& url,
                                         std::shared_ptr<StepLog> steps = nullptr,
                                         StoreUse use = StoreUse::kMessages);

}  // namespace tailcast::storage
