// Connects a queue pair by the connection manager: finds device and route, has its owner make the
// queue pair, connects, and tells when the connection ends.
#pragma once

#include <memory>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_wire.h"

namespace tailcast::fabric {

// Threads: the reactor's; construction any.
class VerbsDialer final : public Reactor::Handler {
 public:
  class Owner {
   public:
    // Makes the queue pair of `id`, and says how to connect it. Not Ok: that ends it.
    virtual Status Prepare(rdma_cm_id* id, rdma_conn_param* connect) = 0;
    // The queue pair is gone, or never was: ends what was made for it. Prepare may come again.
    virtual void Discard() = 0;
    // Once. Not Ok: there will be no connection.
    virtual void OnConnected(Status status) = 0;
    // The connection has ended. After OnConnected with Ok.
    virtual void OnDisconnected(const std::string& why) = 0;
    // Keeps the owner while it is called.
    virtual std::shared_ptr<void> Hold() = 0;

   protected:
    ~Owner() = default;
  };
  // `name`: of the server, for people.
  VerbsDialer(Reactor* reactor, Owner* owner, std::string name)
      : reactor_(reactor), owner_(owner), name_(std::move(name)) {}
  ~VerbsDialer() = default;  // stopped, or never started
  VerbsDialer(const VerbsDialer&) = delete;
  VerbsDialer& operator=(const VerbsDialer&) = delete;

  // Whether this host has RDMA at all. Before Start.
  Status Open();
  // `host`: numeric. Once. Not Ok: OnConnected is not called.
  Status Start(std::string host, uint16_t port, const VerbsToken& token);
  // Destroys the queue pair, then has the owner discard. Nothing is called after it. Idempotent.
  void Stop();

  void OnEvents(uint32_t) override;

 private:
  Status Resolve();
  Status Connect();
  void DestroyQueuePair();
  void OnEvent(const rdma_cm_event& event);
  void Fail(Status status);

  Reactor* const reactor_;
  Owner* const owner_;
  const std::string name_;
  HostPort where_;
  VerbsHello hello_{};
  bool watched_ = false;
  bool stopped_ = false;
  bool open_ = false;
  bool failed_ = false;
  int ports_tried_ = 0;
  VerbsOwned<rdma_event_channel> events_;
  VerbsOwned<rdma_cm_id> id_;
};

}  // namespace tailcast::fabric
