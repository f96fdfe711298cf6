// The reader's connection of the verbs driver. It begins as one of tcp, over which the server
// knows whom it lets in, offers its memory, and later sends the answers to watches and shows by
// its end that its process ended; then a queue pair is connected, which does the reads.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/tcp_session.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_dialer.h"

namespace tailcast::fabric {

class VerbsEndpoint;

// Shared by the loop, which posts, polls and waits for completions, and the engine thread, which
// has the connection manager's events. The queue pair is destroyed by the engine, when the loop has
// let go of it.
class VerbsSession final : public ClientSession, private VerbsDialer::Owner {
 public:
  VerbsSession(const DialContext& context, HostPort where,
               ExporterIncarnation expected_incarnation);

  std::unique_ptr<Endpoint> MakeEndpoint(std::shared_ptr<Reactor> reactor) override;
  void OnEvents(uint32_t) override {}  // it watches nothing itself

 private:
  friend class VerbsEndpoint;
  std::string name() const { return where_.host + ":" + std::to_string(where_.port); }
  Status Begin() override;
  void End() override;
  void OnOffer(const std::string& body, size_t regions);
  Status Prepare(rdma_cm_id* id, rdma_conn_param* connect) override;
  void Discard() override;
  void OnConnected(Status status) override;
  void OnDisconnected(const std::string& why) override { Die(why); }
  std::shared_ptr<void> Hold() override { return shared_from_this(); }
  // Memory that the device may write to, registered_.back(). Unavailable: there is no more.
  Result<std::span<char>> Register(uint64_t bytes);
  void Die(const std::string& why);
  // Has the endpoint look at what is new, on its loop. Any thread.
  void Notice();

  ThreadLoop* const loop_;
  Reactor* const reactor_;
  const HostPort where_;
  const Duration read_timeout_;
  const std::shared_ptr<TcpSession> tcp_;

  // Engine; what the loop uses is constant from `ready` on.
  bool open_ = false;
  bool ended_ = false;
  VerbsOffer offer_;
  uint32_t works_max_ = 0;
  // In the order of making: each is destroyed before what it is made of.
  VerbsOwned<ibv_pd> pd_;
  int access_ = 0;  // what its keys allow
  struct Registered {
    std::shared_ptr<const Mapping> memory;
    VerbsOwned<ibv_mr> key;  // destroyed first
  };
  std::vector<Registered> registered_;  // the arena, then what the loop adds until it lets go
  std::span<char> arena_;
  VerbsOwned<ibv_comp_channel> completions_;  // its events are taken by the loop
  VerbsOwned<ibv_cq> cq_;
  VerbsDialer dialer_;  // with the queue pair
  std::unique_ptr<VerbsPoster> queue_;

  std::atomic<bool> notice_pending_{false};
  std::atomic<bool> dead_{false};
  VerbsEndpoint* endpoint_ = nullptr;  // loop thread
};

}  // namespace tailcast::fabric
