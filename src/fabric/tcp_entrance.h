// Where tcp clients come in: accepts sockets, hears hellos, asks for proofs (handshake.h), and
// hands over who may come in. Whoever has not got so far is a guest: he has a few hundred bytes of
// ours, a place on a bounded list (guest_list.h) and a deadline for all of it, so that noise,
// half-open connections and who sends a byte a second cost nobody anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tailcast/base/scope.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/fabric/guest_list.h"
#include "tailcast/fabric/handshake.h"
#include "tailcast/fabric/log_limit.h"
#include "tailcast/fabric/net_address.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// A client that may come in. Nothing has been sent to it but the challenge.
struct TcpVisitor {
  Descriptor fd;
  std::string peer;    // for log lines
  uint32_t flags = 0;  // of its hello
};

// Threads: the reactor's; construction, Listen and destruction by one that is not.
class TcpEntrance {
 public:
  static constexpr size_t kGuestsMax = 512;
  // From the connection to the end of the handshake.
  static constexpr Duration kHelloTimeout = Duration::Seconds(5);

  // `enter` is called on the reactor's thread.
  TcpEntrance(Reactor* reactor, SharedCellKey key, ExporterIncarnation incarnation,
              std::string name, std::function<void(TcpVisitor)> enter);
  ~TcpEntrance();
  TcpEntrance(const TcpEntrance&) = delete;
  TcpEntrance& operator=(const TcpEntrance&) = delete;

  // Returns the port. Errors as Exporter::Listen.
  Result<uint16_t> Listen(const HostPort& where);
  // When it returns, nobody enters any more. Idempotent.
  void Close();

  // Says no to a client and closes.
  static void Refuse(Descriptor fd, HelloStatus status, ExporterIncarnation incarnation);

 private:
  class Listener;
  class Guest;
  void OnAccept();
  void Drop(int fd);

  Reactor* const reactor_;
  const SharedCellKey key_;
  const ExporterIncarnation incarnation_;
  const std::string name_;
  const std::function<void(TcpVisitor)> enter_;
  std::string address_;  // for log lines
  Descriptor socket_;
  std::unique_ptr<Listener> listener_;
  uint64_t retry_timer_ = 0;
  GuestList list_{kGuestsMax};
  std::map<int, std::unique_ptr<Guest>> guests_;
  LogLimit log_limit_;
  Scope scope_;  // reactor thread
};

}  // namespace tailcast::fabric
