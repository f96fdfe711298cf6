// Makes the real drivers of the fabric port, and chooses among a server's addresses.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/thread_loop.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

// Of ExporterOptions::verbs_host: the tcp door's address, if an RDMA device has it.
inline constexpr char kVerbsAuto[] = "auto";

struct ExporterOptions {
  // Where messages are handled; outlives the exporter, which is destroyed on its thread. Null: it
  // takes none.
  ThreadLoop* loop = nullptr;
  std::string name = "exporter";  // for log lines and thread names
  // What clients must prove that they have, and have proven to them (handshake.h). Null: whoever
  // reaches the doors comes in.
  SharedCellKey key;
  // Where the shm door listens; empty = no such door. A socket file left by a dead server is
  // replaced.
  std::string shm_socket_path;
  // "host:port" where the tcp door listens; port 0 = any free one; empty = no such door.
  std::string tcp_listen;
  // The host that readers should connect to, if it isn't the one listened on (0.0.0.0, say).
  std::string tcp_advertised_host;
  // The numeric address of the RDMA device where the verbs door opens, or kVerbsAuto; empty = no
  // such door.
  std::string verbs_host;
  // A server that beat once and then not for so long is taken for stopped by its readers.
  Duration beat_timeout = Duration::Seconds(2);
  // Connections of both doors; more are refused.
  uint32_t connections_max = 20000;
  // tcp: doorbells one connection may wait on; more are refused.
  uint32_t watches_max = 4096;
  // tcp: reads one connection may have outstanding; the protocol tells it to the readers.
  uint32_t reads_max = 4096;
  // tcp: a reader that was silent for so long is disconnected. Readers ping three times within it.
  Duration peer_timeout = Duration::Seconds(6);
};

// The memory is one sealed memfd per region; the doors of both drivers open on it. One thread
// serves the readers of both, and sleeps unless tcp readers read or readers come and go; two more,
// with tcp, let clients in, and hang up on message channels, which the loop serves.
std::unique_ptr<Exporter> MakeExporter(ExporterOptions options);

struct ConnectorOptions {
  Duration read_timeout = Duration::Seconds(1);
  // Of the cell whose servers are meant; they must prove that they have it. Null: none is proven,
  // and servers that ask for a proof can't be reached.
  SharedCellKey key = {};
};

// Speaks shm and tcp, by the address. Starts one thread, which all its endpoints share; it sleeps
// unless servers come and go, or what is sent does not fit into a socket. `loop` must outlive the
// connector and its endpoints, which are used and destroyed on its thread.
std::unique_ptr<Connector> MakeConnector(ThreadLoop* loop, ConnectorOptions options = {});

// Which of a server's addresses to try, best first: in the order of the drivers (driver.h), without
// those that can't lead from this host there, as an shm address whose socket is on another one.
// `prefer` (a scheme: "shm", "tcp") moves that driver to the front and keeps its addresses in any
// case.
std::vector<std::string> OrderAddresses(const std::vector<std::string>& addresses,
                                        const std::string& prefer = "");

// Those that come before `current`, by which a connection came about; none if all of them can't
// lead from this host there. Who fell back to `current` sees now and then whether one works
// (again).
std::vector<std::string> BetterAddresses(const std::vector<std::string>& addresses,
                                         const std::string& prefer, const std::string& current);

// How a connection came about.
struct Way {
  std::string address;
  // Why not by the addresses that come before it, for people: "shm: not from this host; verbs: no
  // answer from ..."; empty: it is the first.
  std::string passed_over;
};
std::string_view SchemeOf(const std::string& address);
// Why it is this one, for people.
std::string ReasonOf(const Way& way);

// Connects by the best address that works; the last error if none does. `timeout` is for each. One
// that failed slowly is tried after the others (Connector::FailedSlowly).
// `connector` must live until `done` ran or was dropped.
struct BestEndpoint {
  std::unique_ptr<Endpoint> endpoint;
  Way way;
};
void ConnectBest(Connector* connector, const std::vector<std::string>& addresses,
                 const std::string& prefer, Duration timeout,
                 Callback<void(Result<BestEndpoint>)> done);

// The same of a message channel.
struct BestChannel {
  std::unique_ptr<Channel> channel;
  Way way;
};
void OpenBestChannel(Connector* connector, const std::vector<std::string>& addresses,
                     const std::string& prefer, Duration timeout,
                     Callback<void(Result<BestChannel>)> done);

}  // namespace tailcast::fabric
