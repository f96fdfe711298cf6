// What devices say of themselves, of which one thing is of use: that few buffers are left in a
// shared receive queue. The connection manager opens a device once for the whole process, so
// whoever reads an event may have read another's; a table of all queues finds whose it is.
#pragma once

#include <cstdint>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/verbs_device.h"

namespace tailcast::fabric {

// Threads: the reactor's.
class VerbsEvents final : public Reactor::Handler {
 public:
  // Both outlive Stop.
  VerbsEvents(Reactor* reactor, ibv_context* device) : reactor_(reactor), device_(device) {}
  Status Start();
  void Stop();

  // `low` is called on any reactor's thread, many times, until Forget has returned: it does no more
  // than post. Any thread.
  static void Watch(const ibv_srq* queue, UniqueFunction<void()> low);
  static void Forget(const ibv_srq* queue);

  void OnEvents(uint32_t) override;

 private:
  Reactor* const reactor_;
  ibv_context* const device_;
};

}  // namespace tailcast::fabric
