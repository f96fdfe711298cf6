// Remote memory access: one-sided reads of a server's registered regions (paper §2.2; CliqueMap).
// A read runs no application code on the server. Drivers: shm (same host), tcp (a software engine
// in the manner of Pony Express), the simulator's fake (fake_fabric.h); all pass
// fabric_conformance.h. connect.h makes them.
//
// A server registers a few regions, numbered from 0, each with a generation that changes whenever
// its memory is laid out anew. A reader reads byte ranges of a region into its own private memory.
// Nothing larger than an aligned 8-byte word is atomic, and that only as far as the driver says
// (Capabilities::word_atomic_bytes_max): a reader validates what it copied.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/check.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"
#include "tailcast/fabric/channel.h"

namespace tailcast::fabric {

using RegionId = uint32_t;

// Tells one layout of a region's memory from the others: drawn when the memory is laid out anew.
enum class Generation : uint64_t { kNone = 0 };  // kNone: invalidated
// Tells one life of a server from the others: drawn when its exporter is made.
enum class ExporterIncarnation : uint64_t { kAny = 0 };

// Regions of one server are numbered 0 .. kRegionsMax - 1 without holes.
inline constexpr uint32_t kRegionsMax = 64;
// Longest read; a longer one completes with kOutOfRange.
inline constexpr uint32_t kReadBytesMax = 1 << 20;
// Reads of one endpoint that were started and not yet polled; more complete with kOverloaded.
inline constexpr size_t kQueuedReadsMax = 16384;

enum class ReadStatus : uint8_t {
  kOk,
  kOutOfRange,   // beyond the region: our bug or an old layout; connect again
  kStaleRegion,  // the region's generation changed: connect again
  kUnreachable,  // connection broken, server dead, or stopped: its heartbeat is too old
  kTimeout,      // no completion in time; the destination is written no more (but see Allocate)
  kOverloaded,   // the endpoint's queue was full; nothing was sent
};

struct ReadDescriptor {
  RegionId region = 0;
  uint32_t length = 0;          // bytes
  uint64_t offset = 0;          // bytes from the region's start
  char* destination = nullptr;  // `length` bytes that stay valid until the completion
  uint64_t token = 0;           // handed back in the completion
};

// Scan-and-read: the server's driver finds what a reader wants and sends it, in one round trip.
// What the request means is known to the exporter's scanner and to who wrote it, not to the fabric.
inline constexpr size_t kScanRangesMax = 3;
using ScanRequest = std::array<char, 32>;

struct Range {
  RegionId region = 0;
  uint32_t length = 0;  // bytes
  uint64_t offset = 0;  // bytes from the region's start
};
// What a request comes to: `ranges[0, count)`, read in this order.
struct ScanPlan {
  std::array<Range, kScanRangesMax> ranges{};
  uint32_t count = 0;
};
// A pure function of the request and of the regions' memory as it is, which the owner changes at
// the same time: no locks, no allocation, bounded time; any thread. What it returns is checked
// against the regions. The request is a reader's: anything may be in it.
using Scanner =
    std::function<ScanPlan(const ScanRequest& request, std::span<const std::span<const char>>)>;

// Touches what the scanner will look at for this request, so that an engine with many requests
// waits for their memory once and not for each: called for all of them with `step` 0, then with 1,
// before the scanner. Like the scanner it is pure, and any request may come.
inline constexpr int kScanPrefetchSteps = 2;
using ScanPrefetch = std::function<void(const ScanRequest& request,
                                        std::span<const std::span<const char>>, int step)>;

// A scan under way. It belongs to the caller and stays where it is, untouched, until its
// completion.
struct ScanRead {
  ScanRequest request{};
  // Where the ranges go, by their number. An answer whose ranges are longer breaks the connection.
  struct Part {
    char* destination = nullptr;
    uint32_t capacity = 0;  // bytes
  };
  std::array<Part, kScanRangesMax> parts{};
  uint64_t token = 0;  // handed back in the completion

  // Of a completion with kOk: what the server says that it has sent. parts[i] has
  // ranges[i].length bytes; of what region and offset is its word only.
  ScanPlan found;
  bool released = false;  // see Endpoint::Release
};

struct Completion {
  uint64_t token = 0;
  ReadStatus status = ReadStatus::kOk;
};

enum class WatchOutcome : uint8_t {
  kChanged,  // the word differs from the last value seen; read what it guards
  kTimeout,
  kUnreachable,
  kRefused,  // over the cap of watches: poll instead
};

struct RegionInfo {
  uint64_t size = 0;                          // bytes
  Generation generation = Generation::kNone;  // never kNone
};

struct Capabilities {
  bool immediate = false;  // reads complete inside Read (the completion still comes by Poll)
  bool watch = false;      // Watch answers without polling by the reader
  bool cross_host = false;
  bool scan = false;  // Scan works: the server has a scanner, and its driver runs it
  // In reads of up to so many bytes an aligned 8-byte word that lies whole in the read is never
  // torn. 0: any may be.
  uint32_t word_atomic_bytes_max = 0;
  // Reads land in memory of Allocate as the server sends them, and elsewhere by one copy more.
  bool registers_memory = false;
};

// A reader's connection to one server. All calls on one thread.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual Capabilities capabilities() const = 0;
  // The regions as the server described them when the connection was made, by RegionId. Empty when
  // not connected.
  virtual std::span<const RegionInfo> regions() const = 0;
  // False for ever once the connection broke: every read completes with kUnreachable or
  // kStaleRegion. Make a new endpoint. A server whose heartbeat stopped keeps its connection: its
  // reads are kUnreachable until it beats again.
  virtual bool connected() const = 0;

  // Reads started from now on complete with kTimeout when there is no answer for so long. Immediate
  // drivers need none. Default: 1 s.
  virtual void set_read_timeout(Duration timeout) = 0;
  // Memory for destinations, zeroed. A driver whose device writes to registered memory only
  // (Capabilities::registers_memory) registers it here; to the others any memory is as good. Take
  // it once and use it again: it stays locked as long as the connection lives, and is there as long
  // as it is held. A place in it where a read timed out, or any when the connection broke, may
  // still be written to: read nothing else there. Null: there is no more.
  virtual std::shared_ptr<char[]> Allocate(size_t bytes) {
    return std::shared_ptr<char[]>(new char[bytes]());
  }
  // Starts a batch. Each read gets exactly one completion. Those of a batch may complete in any
  // order. A destination's bytes are undefined until its completion, and after any but kOk.
  virtual void Read(std::span<const ReadDescriptor> reads) = 0;
  // Only with the capability `scan`. As Read, of scans: one completion each, with the same
  // statuses. kOutOfRange: the scanner's ranges are none of the regions'.
  virtual void Scan(std::span<ScanRead* const> scans) {
    (void)scans;
    TAILCAST_CHECK(false, "this driver does not scan");
  }
  // Gives the destinations of a scan, which waits for Scan or for its completion, back to the
  // caller: when it returns, nothing writes there any more. Its completion comes all the same, and
  // says nothing of bytes.
  virtual void Release(ScanRead& scan) { scan.released = true; }
  // Says that this range will be read soon. Never needed, and of use only where reads are
  // immediate.
  virtual void Prefetch(RegionId region, uint64_t offset, uint32_t length) {
    (void)region, (void)offset, (void)length;
  }
  // The same of what reads for this request will look at: calls `prefetch`, which looks at the
  // memory as it is now.
  virtual void Prefetch(const ScanPrefetch& prefetch, const ScanRequest& request, int step) {
    (void)prefetch, (void)request, (void)step;
  }
  // Takes up to `completions.size()` completions; returns how many: fewer than asked for means that
  // there are no more now. Never blocks.
  virtual size_t Poll(std::span<Completion> completions) = 0;
  // Called, again and again, on the endpoint's loop when completions arrived that Poll has not
  // seen; poll them all. A driver whose reads are immediate never calls it.
  virtual void SetReadyCallback(Callback<void()> ready) = 0;

  // Doorbell: answers once, when the low 32 bits of the aligned 8-byte word at `offset` differ from
  // `last_seen` (at once if they do already) or after `timeout`. Push latency with pull semantics:
  // one notification may stand for several changes. `done` runs on the loop, never inside the call;
  // it may destroy the endpoint. kRefused also for a word outside the region. Never returns 0.
  virtual uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                         Callback<void(WatchOutcome)> done) = 0;
  // The callback of a cancelled watch is not called. Unknown ids are ignored.
  virtual void CancelWatch(uint64_t id) = 0;
};

// Makes endpoints for addresses of the forms "shm:/path/of/unix/socket", "tcp:host:port". Either
// may end in "#<incarnation, 16 hex digits>", as those that Listen returns do: then only that very
// exporter will do, not another one that came to listen at the same place.
class Connector {
 public:
  // Endpoints may outlive their connector, not its loop. `done` callbacks that did not run yet are
  // dropped.
  virtual ~Connector() = default;
  // Connects and learns the server's regions. The endpoint's callbacks run on the connector's loop.
  //   Unavailable: nobody listens, the server is going away, is another incarnation or speaks
  //     another version of the protocol.
  //   DeadlineExceeded. InvalidArgument: an address of unknown form.
  virtual void Connect(const std::string& address, Duration timeout,
                       Callback<void(Result<std::unique_ptr<Endpoint>>)> done) = 0;
  // Opens a message channel to the same server. Errors as Connect's; Unavailable also: it takes no
  // messages.
  virtual void OpenChannel(const std::string& address, Duration timeout,
                           Callback<void(Result<std::unique_ptr<Channel>>)> done) = 0;
  // Why the last attempt at this address failed, if it took its time for it, and that not a minute
  // ago; or "". Who has other addresses tries them first.
  virtual std::string FailedSlowly(const std::string& address) const {
    (void)address;
    return "";
  }
};

// The server's side. The memory belongs to the exporter, so that shm can hand it to readers.
// Threads: AddRegion and Listen by one thread before all else; the rest from any.
class Exporter {
 public:
  virtual ~Exporter() = default;
  // Writable memory of region `id`, zeroed, `size` bytes (a multiple of 8), 4096-aligned. Stays at
  // its address until the exporter is destroyed.
  //   InvalidArgument: a bad size or number, or a number used twice. ResourceExhausted: no memory.
  virtual Result<std::span<char>> AddRegion(RegionId id, uint64_t size) = 0;
  // Takes messages, too: `handler` is called for each, on the loop that the exporter was given.
  // Before Listen, at most once.
  virtual void ServeMessages(MessageHandler handler) = 0;
  // Answers scans. Before Listen; the function and what it refers to live as long as the exporter.
  // Drivers that do not scan ignore it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): drivers keep it
  virtual void SetScanner(Scanner scanner) { (void)scanner; }
  // May be given with the scanner.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the same
  virtual void SetScanPrefetch(ScanPrefetch prefetch) { (void)prefetch; }
  // Opens the doors; no regions after this. Returns the addresses to put in the registry, the
  // fastest first.
  //   AlreadyExists: a living server listens there. InvalidArgument: a bad address, or a hole in
  //   the region numbers.
  virtual Result<std::vector<std::string>> Listen() = 0;
  // Notifies the watchers of a word after the server changed it (release order is the caller's).
  // Cheap when nobody watches. Any thread.
  virtual void Notify(RegionId id, uint64_t offset) = 0;
  // Says that the owner of the memory is alive: call it from the loop that applies the mutations,
  // several times within `beat_timeout` (ExporterOptions; 2 s). Once it was called, readers take a
  // server that ceases to call it for stopped: their reads are kUnreachable until it goes on.
  virtual void Beat() = 0;
  // Makes every region unreadable: connections close, generations end, new connections are refused.
  // What a replica does that is removed or that can't renew its configuration. When it returns, no
  // read that starts later completes with kOk, none that runs gets a byte written later, and no
  // message of the connections that were is handled any more (spec Channel: ClosedIsClosed).
  virtual void Invalidate() = 0;
  // After Invalidate: opens the doors again, with new generations.
  virtual void Renew() = 0;
};

}  // namespace tailcast::fabric
