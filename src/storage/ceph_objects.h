// Objects of one pool of a Ceph cluster, through librados: the object store under the primary layer
// "ceph:..." (open_store.h). Asynchronous: no thread waits for a request, however many are under
// way; librados has its own few, for each connection.
//
// Each request is answered at its deadline at the latest, whatever librados does: what was sent may
// be done later (ObjectOutcome::kUnknown). A full pool is told at once, a deleted one within
// seconds; lost monitors, a revoked key and placement groups without enough OSDs at the deadline,
// and in the log before that (slow_requests_core.h).
//
// librados may take long to connect and to close: nobody waits longer for it than is said here, and
// its threads are counted (unawaited_threads.h).
//
// Threads: Send and destruction on the loop, which takes half a second at most; callbacks on the
// loop.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/object_store.h"

namespace tailcast::storage {

struct CephOptions {
  std::string conf;  // path of ceph.conf; empty: where ceph programs look for it
  std::string pool;
  std::string user = "admin";  // client.USER; its key is where ceph.conf says
  std::string name_space;      // objects of others in the pool are not seen; empty: the default one
  // No request's is longer; librados forgets a request after it.
  Duration deadline = Duration::Seconds(30);
  Duration connect_deadline = Duration::Seconds(5);  // until Connect answers
};

class CephObjects : public ObjectStore {
 public:
  // Blocks, for connect_deadline at most. `loop` outlives the objects.
  //   NotFound            no such ceph.conf, key or pool
  //   PermissionDenied    the cluster does not know the key, or it allows nothing here
  //   Unavailable         no monitor answers
  //   FailedPrecondition  the pool is of a kind that cannot be used
  //   Unimplemented       built without librados
  static Result<std::unique_ptr<CephObjects>> Connect(EventLoop* loop, const CephOptions& options);

  // Sends one and waits for it, `deadline` at most (else kUnknown). Any thread.
  virtual ObjectReply SendAndWait(ObjectRequest request, Duration deadline) = 0;
};

}  // namespace tailcast::storage
