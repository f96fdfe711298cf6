// The fabric port in virtual time, with every fault that the real drivers have shown or the
// hardware's manuals threaten: what the deterministic world and the tests of the cache run on.
//
//   FakeFabricNetwork network(&wire_loop, seed);
//   auto exporter = network.MakeExporter("cache-0");          // addresses "fake:cache-0#..."
//   auto connector = network.MakeConnector("consumer-3", &consumer_loop);
//   network.link("consumer-3", "cache-0").torn_probability = 0.1;
//   network.Cut("consumer-3", "cache-0", /*requests=*/true, /*answers=*/false);
//
// A read takes its request's latency to arrive, is copied out of the server's memory at one moment
// or, torn, at several, and takes the answer's latency back. The driver's own promises hold
// whatever happens: exactly one completion for each read, and no byte of a destination changes
// after it.
//
// Messages arrive in the order of sending, and answers too. What a cut link swallows takes all that
// is sent after it along, until the connection ends some seconds later. `lost_probability` is that
// of an answer that never comes because the connection ends after its message was handled.
//
// Everything is drawn from the seed. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/rng.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

// How reads of one client at one server fare. Faults are off by default. May be changed at any
// time; what is under way keeps what it has drawn.
struct FakeLink {
  Duration latency = Duration::Micros(5);  // one way
  Duration jitter;  // up to so much more, each way; reads overtake each other
  // Long tails: with this probability a read takes longer by an exponentially distributed time.
  double tail_probability = 0;
  Duration tail_mean = Duration::Millis(20);
  int64_t bytes_per_second = 0;  // of answers; 0 = no limit
  // One-way partitions: requests don't arrive; answers and notifications don't.
  bool requests_cut = false;
  bool answers_cut = false;
  // The bytes of a read are copied at several moments within `tear_window`: cache lines in any
  // order, and a line may be cut at any 8-byte word.
  double torn_probability = 0;
  Duration tear_window = Duration::Micros(20);
  // The answer comes after the reader gave up.
  double late_probability = 0;
  // The answer never comes. When the reader gives up on it, the queue is flushed: its other reads
  // complete with kUnreachable and the connection is over, as a queue pair in error state does.
  double lost_probability = 0;
  // A notification that never comes: the watch runs into its timeout.
  double notification_loss_probability = 0;
};

// What happened so far; for tests, and for a trace to compare.
struct FakeFabricCounters {
  uint64_t reads = 0, torn = 0, late = 0, lost = 0, flushed = 0, timeouts = 0, stale = 0,
           beat_refusals = 0, cut = 0, messages = 0, notifications = 0, notifications_lost = 0;
};

struct FakeExporterOptions {
  EventLoop* loop = nullptr;  // where messages are handled; null: it takes none
  Duration beat_timeout = Duration::Seconds(2);
  // True as on verbs and shm: memory reads without its process, so it reads on while the process is
  // stopped. False as on tcp: reads wait for its engine.
  bool one_sided = true;
  size_t watches_max = 4096;  // of one connection
  bool scan = true;           // answers scans, as tcp, if it has a scanner
};

class FakeFabricNetwork {
 public:
  // What is on the wire lives on `wire`, which belongs to no process: it goes on when processes
  // die.
  FakeFabricNetwork(EventLoop* wire, uint64_t seed);
  ~FakeFabricNetwork();
  FakeFabricNetwork(const FakeFabricNetwork&) = delete;
  FakeFabricNetwork& operator=(const FakeFabricNetwork&) = delete;

  // The server's end. A second one of the same name takes the first one's place: a restart.
  // Destroying an exporter closes its connections, as the end of its process does.
  std::unique_ptr<Exporter> MakeExporter(const std::string& server,
                                         FakeExporterOptions options = {});
  // The client's end; callbacks run on `loop`.
  std::unique_ptr<Connector> MakeConnector(const std::string& client, EventLoop* loop);

  // Of new pairs of client and server.
  FakeLink& default_link();
  // Of all pairs, new ones and those that are there; what is cut stays cut.
  void SetEveryLink(const FakeLink& link);
  FakeLink& link(const std::string& client, const std::string& server);
  void Cut(const std::string& client, const std::string& server, bool requests, bool answers);
  // Nothing is cut any more.
  void MendAll();

  // Each read at this server takes so much longer: a slow peer.
  void SetServerDelay(const std::string& server, Duration delay);
  // SIGSTOP and SIGCONT: see one_sided. (Its owner's Beat and Notify cease with its loop.)
  void Stop(const std::string& server);
  void Continue(const std::string& server);
  // kill -9: its connections break, its memory is gone. The exporter may be destroyed after.
  void Kill(const std::string& server);
  // The process is gone and nobody noticed: connections stay, and the memory reads until its
  // heartbeat is too old. The exporter may be destroyed after.
  void KillLeavingMemory(const std::string& server);

  // Gets a number for each answer, message and notification that arrives, which depends on what it
  // carries.
  void SetTrace(std::function<void(uint64_t)> trace);

  const FakeFabricCounters& counters() const;

  struct Wire;  // shared with exporters and endpoints

 private:
  std::shared_ptr<Wire> wire_;
};

}  // namespace tailcast::fabric
