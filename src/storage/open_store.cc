#include "tailcast/storage/open_store.h"

#include <cstdlib>
#include <utility>

#include "tailcast/base/rng.h"
#include "tailcast/storage/ceph_objects.h"
#include "tailcast/storage/posix_store.h"
#include "tailcast/storage/rolled_core.h"
#include "tailcast/storage/rolled_store.h"

namespace tailcast::storage {
namespace {

// Of the five seconds, with what a process needs besides to begin and to end.
constexpr Duration kOpenDeadline = Duration::Millis(4200);

Result<std::unique_ptr<Store>> OpenPosix(EventLoop* loop, const StoreUrl& url,
                                         std::shared_ptr<StepLog> steps, StoreUse use) {
  PosixStoreOptions options;
  options.use = use;
  options.steps = std::move(steps);
  options.open_wait = kOpenDeadline;
  options.durability = url.durable ? posix::Durability::kDurable : posix::Durability::kPageCache;
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<PosixStore> store,
                            PosixStore::Open(loop, url.folder, options));
  return std::unique_ptr<Store>(std::move(store));
}

Result<std::unique_ptr<Store>> OpenCeph(EventLoop* loop, const StoreUrl& url,
                                        std::shared_ptr<StepLog> steps) {
  const MonotonicTime end = ReadMonotonicClock() + kOpenDeadline;
  CephOptions ceph;
  ceph.conf = url.conf;
  ceph.pool = url.pool;
  ceph.user = url.user;
  // A host may keep its ceph.conf elsewhere, and readers have another key than the cell.
  if (const char* conf = std::getenv("TAILCAST_CEPH_CONF"); conf != nullptr) ceph.conf = conf;
  if (const char* user = std::getenv("TAILCAST_CEPH_USER"); user != nullptr) ceph.user = user;
  ceph.name_space = url.name_space;
  ceph.deadline = url.deadline;
  ceph.connect_deadline = kOpenDeadline;
  TAILCAST_ASSIGN_OR_RETURN(std::unique_ptr<CephObjects> objects, CephObjects::Connect(loop, ceph));
  rolled::FormatCore format;
  rolled::Next<Status> next = format.Begin();
  while (std::holds_alternative<ObjectRequest>(next)) {
    next = format.OnReply(
        objects->SendAndWait(std::get<ObjectRequest>(std::move(next)), end - ReadMonotonicClock()));
  }
  TAILCAST_RETURN_IF_ERROR(std::get<Status>(std::move(next)));
  RolledStoreOptions options;
  options.seed = RandomSeed();
  options.roll_bytes = url.roll_bytes;
  options.deadline = url.deadline;
  options.steps = std::move(steps);
  return std::unique_ptr<Store>(std::make_unique<RolledStore>(loop, std::move(objects), options));
}

}  // namespace

Result<std::unique_ptr<Store>> OpenStore(EventLoop* loop, const StoreUrl& url,
                                         std::shared_ptr<StepLog> steps, StoreUse use) {
  Result<std::unique_ptr<Store>> store = url.kind == StoreUrl::Kind::kPosix
                                             ? OpenPosix(loop, url, std::move(steps), use)
                                             : OpenCeph(loop, url, std::move(steps));
  if (!store.ok()) return store.status().WithContext(url.ToString());
  return store;
}

}  // namespace tailcast::storage
