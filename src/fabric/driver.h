// What a driver of the fabric brings along: a door, by which a server's memory is reached, and the
// sessions by which clients reach one. Exporters, connectors and ConnectBest know no driver but
// through this; a new one is registered here and nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/fabric/channel_session.h"
#include "tailcast/fabric/client_session.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/fabric/fabric.h"
#include "tailcast/fabric/message_service.h"
#include "tailcast/fabric/reactor.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {

// What the doors of one exporter share. It outlives them.
struct DoorContext {
  const ExporterOptions* options = nullptr;
  Reactor* reactor = nullptr;
  const RegionMemory* memory = nullptr;
  MessageService* messages = nullptr;  // null: message channels are refused
  Scanner scanner;                     // null: scans are not answered
  ScanPrefetch scan_prefetch;          // may be null
};

// The server's end of one driver. Threads: construction, Listen and destruction by one that is not
// the reactor's; the rest any.
class Door {
 public:
  virtual ~Door() = default;
  // Opens. Returns where, as it stands in an address between scheme and incarnation. Errors as
  // Exporter::Listen.
  virtual Result<std::string> Listen() = 0;
  // When it returns, no connection that was is left, and none of their reads is answered any more.
  virtual void CloseConnections() = 0;
  // After that, and before the regions have generations again.
  virtual void Renew() {}
  // See Exporter::Notify; the word lies in the regions.
  virtual void Notify(RegionId region, uint64_t offset) = 0;
};

// Threads: any; it has no state.
class Driver {
 public:
  virtual ~Driver() = default;
  // What its addresses begin with, before the first ':'.
  virtual std::string_view scheme() const = 0;
  // Null: the options ask for no such door.
  virtual std::unique_ptr<Door> MakeDoor(const DoorContext& context) const = 0;
  // Each is not started yet. InvalidArgument: `where` has not the form of this scheme.
  virtual Result<std::shared_ptr<ClientSession>> Dial(const DialContext& context,
                                                      const Target& target) const = 0;
  virtual Result<std::shared_ptr<ChannelSession>> DialChannel(const DialContext& context,
                                                              const Target& target) const = 0;
  // Whether it may lead from this host to there, as far as a look without a connection tells.
  virtual bool InSight(const std::string& where) const = 0;
};

// All that are registered, the fastest first: shm, verbs, then what was registered, then tcp, which
// leads everywhere. Any thread; what it returns stays.
std::vector<const Driver*> Drivers();
// Null: no driver has this scheme.
const Driver* FindDriver(std::string_view scheme);
// Before any exporter and connector is made. Its scheme is a new one.
void RegisterDriver(std::unique_ptr<Driver> driver);

const Driver& ShmDriver();
const Driver& TcpDriver();
const Driver* VerbsDriver();  // null: built without it (-DTAILCAST_VERBS=OFF)

// The parts of an address "scheme:where#incarnation". InvalidArgument: it has another form, or a
// scheme that nobody registered.
struct Address {
  const Driver* driver = nullptr;
  Target target;
};
Result<Address> ParseAddress(const std::string& text);

}  // namespace tailcast::fabric
