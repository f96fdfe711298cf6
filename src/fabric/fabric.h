// Remote memory access: one-sided reads of a server's registered regions (paper §2.2; CliqueMap).
// A read runs no application code on the server. Drivers: shm (same host), tcp (a software engine in
// the manner of Pony Express), sim's fake; all pass fabric_conformance.h.
//
// A server registers a few regions, numbered from 0, each with a generation that changes whenever
// its memory is laid out anew. A reader reads byte ranges of a region into its own private memory.
// Nothing larger than an aligned 8-byte word is atomic: a reader validates what it copied.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"

namespace tailcast::fabric {

using RegionId = uint32_t;

enum class ReadStatus : uint8_t {
  kOk,
  kOutOfRange,   // beyond the region: our bug or an old layout; connect again
  kStaleRegion,  // the region's generation changed: connect again
  kUnreachable,  // connection broken, server dead or stopped
  kTimeout,      // no completion in time; the destination is written no more
  kOverloaded,   // the endpoint's queue was full; nothing was sent
};

struct ReadOp {
  RegionId region = 0;
  uint32_t length = 0;   // bytes
  uint64_t offset = 0;   // bytes from the region's start
  char* destination = nullptr;  // `length` bytes that stay valid until the completion
  uint64_t token = 0;    // handed back in the completion
};

struct Completion {
  uint64_t token = 0;
  ReadStatus status = ReadStatus::kOk;
};

enum class WatchOutcome : uint8_t {
  kChanged,      // the word differs from the last value seen; read what it guards
  kTimeout,
  kUnreachable,
  kRefused,      // over the cap of watches: poll instead
};

struct RegionInfo {
  uint64_t size = 0;        // bytes
  uint64_t generation = 0;  // never 0
};

struct Capabilities {
  bool immediate = false;     // reads complete inside Read (the completion still comes by Poll)
  bool watch = false;         // Watch rings without polling by the reader
  bool cross_host = false;
};

// A reader's connection to one server. All calls on one thread.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual Capabilities capabilities() const = 0;
  // The regions as the server described them when the connection was made. Empty when not connected.
  virtual std::span<const RegionInfo> regions() const = 0;
  virtual bool connected() const = 0;

  // Starts a batch. Each op gets exactly one completion. Ops of one batch may complete in any
  // order, and bytes may be torn at 8-byte words.
  virtual void Read(std::span<const ReadOp> ops) = 0;
  // Takes up to `completions.size()` completions; returns how many. Never blocks.
  virtual size_t Poll(std::span<Completion> completions) = 0;
  // Called on the endpoint's loop when completions wait that Poll has not seen: a driver whose
  // reads are immediate never calls it.
  virtual void SetReadyCallback(Callback<void()> ready) = 0;

  // Doorbell: answers once, when the low 32 bits of the aligned 8-byte word at `offset` differ from
  // `last_seen` (at once if they do already) or after `timeout`. Push latency with pull semantics:
  // several changes may be answered by one ring.
  virtual uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                         Callback<void(WatchOutcome)> done) = 0;
  // The callback of a cancelled watch is not called. Unknown ids are ignored.
  virtual void CancelWatch(uint64_t id) = 0;
};

// Makes endpoints for addresses of the forms "shm:/path/of/unix/socket", "tcp:host:port".
class Connector {
 public:
  virtual ~Connector() = default;
  // Connects and learns the server's regions. The endpoint's callbacks run on the connector's loop.
  //   Unavailable: nobody listens, or the server is going away. DeadlineExceeded.
  //   InvalidArgument: an address of unknown form.
  virtual void Connect(const std::string& address, Duration timeout,
                       Callback<void(Result<std::unique_ptr<Endpoint>>)> done) = 0;
};

// The server's side. The memory belongs to the exporter, so that shm can hand it to readers.
class Exporter {
 public:
  virtual ~Exporter() = default;
  // Writable memory of region `id`, zeroed, `size` bytes, 4096-aligned. Stays at its address until
  // the exporter is destroyed.
  virtual Result<std::span<char>> AddRegion(RegionId id, uint64_t size) = 0;
  // Opens the doors; no regions after this. Returns the addresses to put in the registry.
  virtual Result<std::vector<std::string>> Listen() = 0;
  // Rings the watchers of a word after the server changed it (release order is the caller's).
  // Cheap when nobody watches. Any thread.
  virtual void Ring(RegionId id, uint64_t offset) = 0;
  // Makes every region unreadable: connections close, generations end. What a replica does that is
  // removed or that can't renew its configuration.
  virtual void Invalidate() = 0;
};

}  // namespace tailcast::fabric
