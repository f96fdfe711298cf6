#include "tailcast/fabric/fake_fabric.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/word_copy.h"

namespace tailcast::fabric {
namespace {

FAULT_POINT(kAcceptStaleRegion, "fabric.fake_accept_stale_region",
            "a read of the simulated fabric gets bytes of a generation that has ended");
FAULT_POINT(kIgnoreHeartbeat, "fabric.fake_ignore_heartbeat",
            "a read of the simulated fabric does not look at the server's heartbeat");

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kPageBytes = 4096;

struct FakeRegion {
  Mapping memory;  // and a page behind it that nobody may touch
  RegionInfo info;
};

struct Client;

struct Watcher {
  std::weak_ptr<Client> client;
  uint64_t id = 0;
  RegionId region = 0;
  uint64_t offset = 0;
  uint32_t last_seen = 0;
};

// The memory of one server's incarnation. Lives as long as somebody may read it.
struct Memory {
  std::string server;
  FakeExporterOptions options;
  ExporterIncarnation incarnation{};
  uint64_t next_generation = 0;
  std::vector<FakeRegion> regions;
  bool listening = false;
  bool readable = true;  // false: the process is dead, and so is its memory
  bool stopped = false;
  Duration delay;
  std::optional<MonotonicTime> last_beat;
  std::vector<std::weak_ptr<Client>> clients;
  std::vector<Watcher> watchers;
  std::vector<UniqueFunction<void()>> held;  // requests that wait for a stopped engine
};

uint32_t LoadLow(const Memory& memory, RegionId region, uint64_t offset) {
  uint32_t value;
  std::memcpy(&value, memory.regions[region].memory.data() + offset, sizeof(value));
  return value;
}

class FakeEndpoint;

// What the wire knows of an endpoint. The endpoint's own state is touched on its loop only.
struct Client {
  std::string name;
  EventLoop* loop = nullptr;
  std::shared_ptr<Memory> memory;
  std::vector<RegionInfo> infos;     // as told at the connection
  MonotonicTime busy_until;          // of the answers' direction
  FakeEndpoint* endpoint = nullptr;  // null once destroyed
  bool broken = false;               // the client's end has noticed
};

// How the pieces of one read are copied.
struct Copy {
  uint64_t offset;
  uint32_t length;
};

}  // namespace

struct FakeFabricNetwork::Wire {
  Wire(EventLoop* l, uint64_t seed) : loop(l), rng(seed) {}

  FakeLink& LinkOf(const std::string& client, const std::string& server) {
    return links.try_emplace({client, server}, default_link).first->second;
  }
  Duration Latency(const FakeLink& link) {
    Duration d = link.latency;
    if (link.jitter > Duration()) {
      d = d + Duration::Micros(
                  static_cast<int64_t>(rng.Below(static_cast<uint64_t>(link.jitter.micros()) + 1)));
    }
    if (link.tail_probability > 0 && rng.Chance(link.tail_probability)) {
      d = d + Duration::Micros(static_cast<int64_t>(
                  rng.Exponential(static_cast<double>(link.tail_mean.micros()))));
    }
    return d;
  }
  // Runs `task` on the wire; dropped with the network.
  template <typename Function>
  void After(Duration delay, Function function) {
    loop->At(loop->Now() + delay, scope.Bind(std::move(function)));
  }
  // Runs `task` at the server when its engine can.
  void AtServer(const std::shared_ptr<Memory>& memory, UniqueFunction<void()> task) {
    if (memory->stopped && !memory->options.one_sided) {
      // What waits for a process that is gone waits for nobody.
      if (Find(memory->server) == memory) memory->held.push_back(std::move(task));
    } else {
      task();
    }
  }
  bool BeatStopped(const Memory& memory) const {
    return memory.last_beat.has_value() && !kIgnoreHeartbeat.planted() &&
           loop->Now() - *memory.last_beat > memory.options.beat_timeout;
  }
  std::shared_ptr<Memory> Find(const std::string& server) const {
    const auto it = servers.find(server);
    return it == servers.end() ? nullptr : it->second;
  }

  void CloseConnections(Memory& memory);
  void Break(const std::shared_ptr<Client>& client);
  void ServeRead(const std::shared_ptr<Client>& client, const ReadDescriptor& read, uint64_t id);
  void FinishRead(const std::shared_ptr<Client>& client, const ReadDescriptor& read, uint64_t id,
                  ReadStatus status, const std::shared_ptr<std::vector<char>>& bytes);
  ReadStatus Check(const Client& client, const ReadDescriptor& read);
  void ServeWatch(const std::shared_ptr<Client>& client, Watcher watcher);
  void SendNotification(const std::shared_ptr<Client>& client, uint64_t id, WatchOutcome outcome);
  void Notify(Memory& memory, RegionId region, uint64_t offset);

  EventLoop* const loop;
  Rng rng;
  FakeLink default_link;
  std::map<std::pair<std::string, std::string>, FakeLink> links;
  std::map<std::string, std::shared_ptr<Memory>> servers;
  std::map<std::string, Duration> delays;
  FakeFabricCounters counters;
  Scope scope;
};

namespace {

using Wire = FakeFabricNetwork::Wire;

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(std::shared_ptr<Wire> wire, std::shared_ptr<Client> client)
      : wire_(std::move(wire)), client_(std::move(client)), loop_(client_->loop) {
    client_->endpoint = this;
  }
  ~FakeEndpoint() override { client_->endpoint = nullptr; }

  Capabilities capabilities() const override {
    return {.immediate = false, .watch = true, .cross_host = true};
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? std::span<const RegionInfo>(client_->infos)
                       : std::span<const RegionInfo>();
  }
  bool connected() const override { return !client_->broken; }
  void set_read_timeout(Duration timeout) override { read_timeout_ = timeout; }

  void Read(std::span<const ReadDescriptor> reads) override {
    const MonotonicTime deadline = loop_->Now() + read_timeout_;
    FakeLink& link = wire_->LinkOf(client_->name, client_->memory->server);
    for (const ReadDescriptor& read : reads) {
      const ReadStatus status = Admit(read);
      ++queued_;
      if (status != ReadStatus::kOk) {
        Complete(read.token, status);
        continue;
      }
      ++wire_->counters.reads;
      const uint64_t id = next_read_++;
      reads_[id] = {read.token, read.destination, deadline, false};
      if (link.requests_cut) {
        ++wire_->counters.cut;
        continue;
      }
      wire_->After(wire_->Latency(link) + client_->memory->delay,
                   [wire = wire_.get(), client = client_, read, id] {
                     wire->AtServer(client->memory, [wire, client, read, id] {
                       wire->ServeRead(client, read, id);
                     });
                   });
    }
    ArmTimeout();
  }

  size_t Poll(std::span<Completion> completions) override {
    const size_t n = std::min(completions.size(), completions_.size() - polled_);
    std::copy_n(completions_.begin() + static_cast<ptrdiff_t>(polled_), n, completions.begin());
    polled_ += n;
    queued_ -= n;
    if (polled_ == completions_.size()) {
      completions_.clear();
      polled_ = 0;
    }
    return n;
  }
  void SetReadyCallback(Callback<void()> ready) override {
    ready_ = std::make_shared<Callback<void()>>(std::move(ready));
  }

  uint64_t Watch(RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(WatchOutcome)> done) override {
    const uint64_t id = next_watch_++;
    WatchState& watch = watches_.try_emplace(id, *loop_).first->second;
    watch.done = std::move(done);
    const std::vector<RegionInfo>& infos = client_->infos;
    std::optional<WatchOutcome> now;
    if (!connected()) {
      now = WatchOutcome::kUnreachable;
    } else if (region >= infos.size() || offset % 8 != 0 || offset >= infos[region].size ||
               watches_.size() > client_->memory->options.watches_max) {
      now = WatchOutcome::kRefused;
    }
    if (now.has_value()) {
      watch.timer.After(Duration(), scope_.Bind([this, id, now] { Answer(id, *now); }));
      return id;
    }
    watch.timer.After(timeout, scope_.Bind([this, id] {
      Forget(id);
      Answer(id, WatchOutcome::kTimeout);
    }));
    FakeLink& link = wire_->LinkOf(client_->name, client_->memory->server);
    if (link.requests_cut) return id;
    wire_->After(wire_->Latency(link),
                 [wire = wire_.get(), client = client_, id, region, offset, last_seen] {
                   wire->AtServer(client->memory, [wire, client, id, region, offset, last_seen] {
                     wire->ServeWatch(client, {client, id, region, offset, last_seen});
                   });
                 });
    return id;
  }
  void CancelWatch(uint64_t id) override {
    auto node = watches_.extract(id);
    if (node) Forget(id);
  }

  const Scope& scope() const { return scope_; }
  // From the wire, on our loop.
  void OnAnswer(uint64_t id, ReadStatus status, const std::vector<char>& bytes) {
    const auto it = reads_.find(id);
    if (it == reads_.end()) {  // it timed out: the bytes go nowhere
      ++wire_->counters.late;
      return;
    }
    if (status == ReadStatus::kOk && !bytes.empty()) {
      std::memcpy(it->second.destination, bytes.data(), bytes.size());
    }
    Complete(it->second.token, status);
    reads_.erase(it);
  }
  void OnLost(uint64_t id) {
    const auto it = reads_.find(id);
    if (it != reads_.end()) it->second.lost = true;
  }
  void OnDoorbell(uint64_t id, WatchOutcome outcome) { Answer(id, outcome); }
  // The connection is over: everything that waits is unreachable.
  void OnBroken() {
    const Scope::Watcher self = scope_.Watch();
    for (const auto& [id, read] : reads_) Complete(read.token, ReadStatus::kUnreachable);
    reads_.clear();
    std::vector<uint64_t> ids;
    for (const auto& [id, watch] : watches_) ids.push_back(id);
    for (const uint64_t id : ids) {
      Answer(id, WatchOutcome::kUnreachable);
      if (self.ended()) return;
    }
  }

 private:
  struct Pending {
    uint64_t token;
    char* destination;
    MonotonicTime deadline;
    bool lost;  // never to come, and it takes the queue with it
  };
  struct WatchState {
    explicit WatchState(EventLoop& loop) : timer(loop) {}
    Callback<void(WatchOutcome)> done;
    Timer timer;
  };

  ReadStatus Admit(const ReadDescriptor& read) const {
    if (queued_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
    const std::vector<RegionInfo>& infos = client_->infos;
    if (read.region >= infos.size() || read.length > kReadBytesMax ||
        read.offset > infos[read.region].size ||
        read.length > infos[read.region].size - read.offset) {
      return ReadStatus::kOutOfRange;
    }
    return connected() ? ReadStatus::kOk : ReadStatus::kUnreachable;
  }
  void Complete(uint64_t token, ReadStatus status) {
    completions_.push_back({token, status});
    if (notice_) return;
    notice_ = true;
    loop_->Post(scope_.Bind([this] {
      notice_ = false;
      if (ready_ == nullptr || !*ready_ || polled_ == completions_.size()) return;
      const std::shared_ptr<Callback<void()>> ready = ready_;
      (*ready)();  // may destroy us
    }));
  }
  void ArmTimeout() {
    MonotonicTime next = MonotonicTime::Max();
    for (const auto& [id, read] : reads_) next = std::min(next, read.deadline);
    if (next == MonotonicTime::Max() || (timeout_.armed() && timeout_.when() <= next)) return;
    timeout_.At(next, scope_.Bind([this] { OnTimeout(); }));
  }
  void OnTimeout() {
    const MonotonicTime now = loop_->Now();
    bool flush = false;
    for (auto it = reads_.begin(); it != reads_.end();) {
      if (it->second.deadline > now) {
        ++it;
        continue;
      }
      flush |= it->second.lost;
      ++wire_->counters.timeouts;
      Complete(it->second.token, ReadStatus::kTimeout);
      it = reads_.erase(it);
    }
    if (flush && connected()) {
      wire_->counters.flushed += reads_.size();
      client_->broken = true;
      OnBroken();  // may destroy us
      return;
    }
    ArmTimeout();
  }
  void Answer(uint64_t id, WatchOutcome outcome) {
    auto node = watches_.extract(id);
    if (!node) return;
    node.mapped().done(outcome);  // may destroy us
  }
  // The server's end of a watch that we gave up.
  void Forget(uint64_t id) {
    std::erase_if(client_->memory->watchers,
                  [&](const Watcher& w) { return w.id == id && w.client.lock() == client_; });
  }

  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<Client> client_;
  EventLoop* const loop_;
  Duration read_timeout_ = Duration::Seconds(1);
  std::shared_ptr<Callback<void()>> ready_;
  std::map<uint64_t, Pending> reads_;  // by order of submission
  uint64_t next_read_ = 1;
  size_t queued_ = 0;  // started and not polled
  std::vector<Completion> completions_;
  size_t polled_ = 0;
  bool notice_ = false;
  Timer timeout_{*loop_};
  std::map<uint64_t, WatchState> watches_;
  uint64_t next_watch_ = 1;
  Scope scope_;
};

// Runs `action(endpoint)` on the client's loop, if the endpoint is still there then. (Without it
// the loop may be gone, too.)
template <typename Action>
void AtEndpoint(const std::shared_ptr<Client>& client, Action action) {
  if (client->endpoint == nullptr) return;
  client->loop->Post(client->endpoint->scope().Bind(
      [endpoint = client->endpoint, action = std::move(action)] { action(*endpoint); }));
}

class FakeExporter final : public Exporter {
 public:
  FakeExporter(std::shared_ptr<Wire> wire, std::string server, FakeExporterOptions options)
      : wire_(std::move(wire)), memory_(std::make_shared<Memory>()) {
    memory_->server = std::move(server);
    memory_->options = options;
    memory_->incarnation = ExporterIncarnation{wire_->rng.Next() | 1};
    memory_->next_generation = wire_->rng.Next() | 1;
    if (const auto it = wire_->delays.find(memory_->server); it != wire_->delays.end()) {
      memory_->delay = it->second;
    }
  }
  ~FakeExporter() override {
    if (wire_->Find(memory_->server) != memory_) return;  // killed, or replaced by a restart
    memory_->readable = false;
    wire_->CloseConnections(*memory_);
    wire_->servers.erase(memory_->server);
  }

  Result<std::span<char>> AddRegion(RegionId id, uint64_t size) override {
    const std::string what = "region " + std::to_string(id);
    if (memory_->listening) return FailedPreconditionError(what + " is added after Listen");
    if (id >= kRegionsMax) return InvalidArgumentError(what + ": the number is too large");
    if (size == 0 || size % 8 != 0) {
      return InvalidArgumentError(what + ": its size is no positive multiple of 8");
    }
    if (id < memory_->regions.size() && memory_->regions[id].info.size != 0) {
      return InvalidArgumentError(what + " exists already");
    }
    // Fresh pages are zero and cost nothing until they are touched; most of a simulated cache never
    // is, and clearing it took most of a short run's time.
    const uint64_t rounded = (size + kPageBytes - 1) & ~(kPageBytes - 1);
    void* const pages =
        mmap(nullptr, rounded + kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return ResourceExhaustedError(what + ": no memory");
    auto* const bytes = static_cast<char*>(pages);
    Mapping memory(bytes, rounded + kPageBytes);
    if (mprotect(pages, rounded, PROT_READ | PROT_WRITE) != 0) {
      return ResourceExhaustedError(what + ": no memory");
    }
    if (id >= memory_->regions.size()) memory_->regions.resize(id + 1);
    memory_->regions[id].memory = std::move(memory);
    memory_->regions[id].info.size = size;
    return std::span<char>(bytes, size);
  }
  Result<std::vector<std::string>> Listen() override {
    for (size_t id = 0; id < memory_->regions.size() || id == 0; ++id) {
      if (id >= memory_->regions.size() || memory_->regions[id].info.size == 0) {
        return InvalidArgumentError("region " + std::to_string(id) + " is missing");
      }
    }
    if (const auto old =
            wire_->Find(memory_->server)) {  // a restart, before the old end was noticed
      old->readable = false;
      wire_->CloseConnections(*old);
    }
    wire_->servers[memory_->server] = memory_;
    memory_->listening = true;
    Renew();
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "#%016llx",
                  static_cast<unsigned long long>(memory_->incarnation));
    return std::vector<std::string>{"fake:" + memory_->server + suffix};
  }
  void Notify(RegionId id, uint64_t offset) override { wire_->Notify(*memory_, id, offset); }
  void Beat() override { memory_->last_beat = wire_->loop->Now(); }
  void Invalidate() override {
    for (FakeRegion& region : memory_->regions) region.info.generation = Generation::kNone;
    wire_->CloseConnections(*memory_);
  }
  void Renew() override {
    for (FakeRegion& region : memory_->regions)
      region.info.generation = Generation{++memory_->next_generation};
  }

 private:
  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<Memory> memory_;
};

class FakeConnector final : public Connector {
 public:
  FakeConnector(std::shared_ptr<Wire> wire, std::string name, EventLoop* loop)
      : wire_(std::move(wire)), name_(std::move(name)), loop_(loop) {}

  void Connect(const std::string& address, Duration timeout,
               Callback<void(Result<std::unique_ptr<Endpoint>>)> done) override {
    const uint64_t id = next_id_++;
    Pending& pending = pending_.try_emplace(id, *loop_).first->second;
    pending.done = std::move(done);
    const size_t hash = address.rfind('#');
    const std::string server =
        address.starts_with("fake:")
            ? address.substr(5, hash == std::string::npos ? std::string::npos : hash - 5)
            : "";
    ExporterIncarnation incarnation{};
    if (hash != std::string::npos) {
      incarnation = ExporterIncarnation{std::strtoull(address.c_str() + hash + 1, nullptr, 16)};
    }
    if (server.empty()) {
      pending.timer.After(Duration(), scope_.Bind([this, id, address] {
        Answer(id, InvalidArgumentError("\"" + address + "\" is no address of the fake"));
      }));
      return;
    }
    pending.timer.After(timeout, scope_.Bind([this, id, address] {
      Answer(id, DeadlineExceededError("no answer from " + address));
    }));
    using Answered = Callback<void(const Status&, std::shared_ptr<Client>)>;
    Answered answered =
        scope_.Bind([this, id](const Status& refusal, std::shared_ptr<Client> client) {
          if (client == nullptr) return Answer(id, refusal);
          Answer(id, std::unique_ptr<Endpoint>(new FakeEndpoint(wire_, std::move(client))));
        });
    FakeLink& link = wire_->LinkOf(name_, server);
    if (link.requests_cut) return;
    wire_->After(wire_->Latency(link), [wire = wire_, loop = loop_, name = name_, server,
                                        incarnation, answered = std::move(answered)]() mutable {
      const std::shared_ptr<Memory> memory = wire->Find(server);
      auto serve = [wire, loop, name, server, incarnation, memory,
                    answered = std::move(answered)]() mutable {
        Status refusal;
        if (memory == nullptr || !memory->readable) {
          refusal = UnavailableError("nobody serves " + server);
        } else if (incarnation != ExporterIncarnation::kAny && memory->incarnation != incarnation) {
          refusal = UnavailableError("another incarnation of " + server + " is there");
        } else if (memory->regions[0].info.generation == Generation::kNone) {
          refusal = UnavailableError(server + " is going away");
        }
        std::shared_ptr<Client> client;
        if (refusal.ok()) {
          client = std::make_shared<Client>();
          client->name = name;
          client->loop = loop;
          client->memory = memory;
          for (const FakeRegion& region : memory->regions) client->infos.push_back(region.info);
          std::erase_if(memory->clients, [](const auto& weak) { return weak.expired(); });
          memory->clients.push_back(client);
        }
        FakeLink& back = wire->LinkOf(name, server);
        if (back.answers_cut) return;
        wire->After(wire->Latency(back),
                    [loop, client, refusal, answered = std::move(answered)]() mutable {
                      if (answered.dropped()) return;  // and the loop may be gone
                      loop->Post(std::move(answered).With(refusal, client));
                    });
      };
      if (memory == nullptr) {
        serve();
      } else {
        // The process itself shakes hands, however its memory is read.
        if (memory->stopped) {
          memory->held.push_back(std::move(serve));
        } else {
          serve();
        }
      }
    });
  }

 private:
  struct Pending {
    explicit Pending(EventLoop& loop) : timer(loop) {}
    Callback<void(Result<std::unique_ptr<Endpoint>>)> done;
    Timer timer;
  };
  void Answer(uint64_t id, Result<std::unique_ptr<Endpoint>> result) {
    auto node = pending_.extract(id);
    if (node) node.mapped().done(std::move(result));  // else it timed out
  }

  const std::shared_ptr<Wire> wire_;
  const std::string name_;
  EventLoop* const loop_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_id_ = 1;
  Scope scope_;
};

}  // namespace

void FakeFabricNetwork::Wire::CloseConnections(Memory& memory) {
  memory.watchers.clear();
  for (const std::weak_ptr<Client>& weak : memory.clients) {
    const std::shared_ptr<Client> client = weak.lock();
    if (client == nullptr) continue;
    FakeLink& link = LinkOf(client->name, memory.server);
    if (link.answers_cut) continue;  // a half-open connection: its reads will time out
    After(Latency(link), [this, client] { Break(client); });
  }
  memory.clients.clear();
}

void FakeFabricNetwork::Wire::Break(const std::shared_ptr<Client>& client) {
  AtEndpoint(client, [client](FakeEndpoint& endpoint) {
    if (std::exchange(client->broken, true)) return;
    endpoint.OnBroken();
  });
}

ReadStatus FakeFabricNetwork::Wire::Check(const Client& client, const ReadDescriptor& read) {
  const Memory& memory = *client.memory;
  if (!memory.readable) return ReadStatus::kUnreachable;
  if (memory.regions[read.region].info.generation != client.infos[read.region].generation &&
      !kAcceptStaleRegion.planted()) {
    ++counters.stale;
    return ReadStatus::kStaleRegion;
  }
  if (BeatStopped(memory)) {
    ++counters.beat_refusals;
    return ReadStatus::kUnreachable;
  }
  return ReadStatus::kOk;
}

// Copies at once, or piece by piece.
void FakeFabricNetwork::Wire::ServeRead(const std::shared_ptr<Client>& client,
                                        const ReadDescriptor& read, uint64_t id) {
  const ReadStatus status = Check(*client, read);
  auto bytes = std::make_shared<std::vector<char>>();
  if (status != ReadStatus::kOk) {
    FinishRead(client, read, id, status, bytes);
    return;
  }
  bytes->resize(read.length);
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  const bool torn =
      read.length > 8 && link.torn_probability > 0 && rng.Chance(link.torn_probability);
  if (!torn) {
    CopyWords(bytes->data(), client->memory->regions[read.region].memory.data(), read.offset,
              read.length);
    FinishRead(client, read, id, status, bytes);
    return;
  }
  ++counters.torn;
  const size_t steps = 2 + rng.Below(3);
  std::vector<std::vector<Copy>> pieces(steps);
  for (uint64_t at = read.offset; at < read.offset + read.length;) {
    uint64_t end = std::min((at / kLineBytes + 1) * kLineBytes, read.offset + read.length);
    if (rng.Chance(0.25)) {  // cut the line at a word
      const uint64_t word = (at / 8 + 1 + rng.Below(8)) * 8;
      end = std::min(end, word);
    }
    pieces[rng.Below(steps)].push_back({at - read.offset, static_cast<uint32_t>(end - at)});
    at = end;
  }
  for (size_t step = 0; step < steps; ++step) {
    const Duration delay =
        link.tear_window * static_cast<int64_t>(step) / static_cast<int64_t>(steps - 1);
    After(delay, [this, client, read, id, bytes, last = step + 1 == steps,
                  copies = std::move(pieces[step])] {
      const ReadStatus now = Check(*client, read);
      if (now == ReadStatus::kOk) {
        const char* memory = client->memory->regions[read.region].memory.data();
        for (const Copy& copy : copies) {
          CopyWords(bytes->data() + copy.offset, memory, read.offset + copy.offset, copy.length);
        }
      }
      if (last) FinishRead(client, read, id, now, bytes);
    });
  }
}

void FakeFabricNetwork::Wire::FinishRead(const std::shared_ptr<Client>& client,
                                         const ReadDescriptor& read, uint64_t id, ReadStatus status,
                                         const std::shared_ptr<std::vector<char>>& bytes) {
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  if (link.answers_cut) {
    ++counters.cut;
    return;
  }
  if (link.lost_probability > 0 && rng.Chance(link.lost_probability)) {
    ++counters.lost;
    AtEndpoint(client, [id](FakeEndpoint& endpoint) { endpoint.OnLost(id); });
    return;
  }
  Duration delay = Latency(link);
  if (link.late_probability > 0 && rng.Chance(link.late_probability)) {
    // Past any deadline that is in use; the reader decides which one it has.
    delay =
        delay + Duration::Seconds(1) + Duration::Micros(static_cast<int64_t>(rng.Below(5'000'000)));
  }
  if (link.bytes_per_second > 0) {
    const MonotonicTime start = std::max(loop->Now(), client->busy_until);
    client->busy_until = start + Duration::Micros(static_cast<int64_t>(read.length) * 1'000'000 /
                                                  link.bytes_per_second);
    delay = delay + (client->busy_until - loop->Now());
  }
  After(delay, [client, id, status, bytes] {
    AtEndpoint(client, [id, status, bytes](FakeEndpoint& endpoint) {
      endpoint.OnAnswer(id, status, *bytes);
    });
  });
}

void FakeFabricNetwork::Wire::ServeWatch(const std::shared_ptr<Client>& client, Watcher watcher) {
  Memory& memory = *client->memory;
  if (!memory.readable || client->endpoint == nullptr) return;
  if (memory.regions[watcher.region].info.generation != client->infos[watcher.region].generation) {
    return;  // the end of the connection is on its way
  }
  if (LoadLow(memory, watcher.region, watcher.offset) != watcher.last_seen) {
    SendNotification(client, watcher.id, WatchOutcome::kChanged);
  } else {
    memory.watchers.push_back(std::move(watcher));
  }
}

void FakeFabricNetwork::Wire::SendNotification(const std::shared_ptr<Client>& client, uint64_t id,
                                               WatchOutcome outcome) {
  const FakeLink& link = LinkOf(client->name, client->memory->server);
  ++counters.notifications;
  if (link.answers_cut ||
      (link.notification_loss_probability > 0 && rng.Chance(link.notification_loss_probability))) {
    ++counters.notifications_lost;
    return;
  }
  After(Latency(link), [client, id, outcome] {
    AtEndpoint(client, [id, outcome](FakeEndpoint& endpoint) { endpoint.OnDoorbell(id, outcome); });
  });
}

void FakeFabricNetwork::Wire::Notify(Memory& memory, RegionId region, uint64_t offset) {
  if (!memory.listening || region >= memory.regions.size()) return;
  std::vector<std::pair<std::shared_ptr<Client>, uint64_t>> notified;
  std::erase_if(memory.watchers, [&](const Watcher& w) {
    const std::shared_ptr<Client> client = w.client.lock();
    if (client == nullptr || client->endpoint == nullptr) return true;
    if (w.region != region || w.offset != offset) return false;
    if (LoadLow(memory, region, offset) == w.last_seen) return false;
    notified.emplace_back(client, w.id);
    return true;
  });
  for (const auto& [client, id] : notified) SendNotification(client, id, WatchOutcome::kChanged);
}

FakeFabricNetwork::FakeFabricNetwork(EventLoop* wire, uint64_t seed)
    : wire_(std::make_shared<Wire>(wire, seed)) {}
FakeFabricNetwork::~FakeFabricNetwork() = default;

std::unique_ptr<Exporter> FakeFabricNetwork::MakeExporter(const std::string& server,
                                                          FakeExporterOptions options) {
  return std::make_unique<FakeExporter>(wire_, server, options);
}
std::unique_ptr<Connector> FakeFabricNetwork::MakeConnector(const std::string& client,
                                                            EventLoop* loop) {
  return std::make_unique<FakeConnector>(wire_, client, loop);
}
FakeLink& FakeFabricNetwork::default_link() { return wire_->default_link; }
FakeLink& FakeFabricNetwork::link(const std::string& client, const std::string& server) {
  return wire_->LinkOf(client, server);
}
void FakeFabricNetwork::Cut(const std::string& client, const std::string& server, bool requests,
                            bool answers) {
  FakeLink& l = link(client, server);
  l.requests_cut = requests;
  l.answers_cut = answers;
}
void FakeFabricNetwork::SetServerDelay(const std::string& server, Duration delay) {
  wire_->delays[server] = delay;
  if (const auto memory = wire_->Find(server)) memory->delay = delay;
}
void FakeFabricNetwork::Stop(const std::string& server) {
  if (const auto memory = wire_->Find(server)) memory->stopped = true;
}
void FakeFabricNetwork::Continue(const std::string& server) {
  const auto memory = wire_->Find(server);
  if (memory == nullptr) return;
  memory->stopped = false;
  std::vector<UniqueFunction<void()>> held;
  held.swap(memory->held);
  for (UniqueFunction<void()>& request : held) request();
}
void FakeFabricNetwork::Kill(const std::string& server) {
  const auto memory = wire_->Find(server);
  if (memory == nullptr) return;
  memory->readable = false;
  memory->held.clear();
  wire_->CloseConnections(*memory);
  wire_->servers.erase(server);
}
void FakeFabricNetwork::KillLeavingMemory(const std::string& server) {
  const auto memory = wire_->Find(server);
  if (memory == nullptr) return;
  // A process that never beat would read for ever; from now on its silence counts.
  if (!memory->last_beat.has_value()) memory->last_beat = wire_->loop->Now();
  if (!memory->options.one_sided) memory->stopped = true;  // nobody is left to answer
  memory->watchers.clear();
  memory->held.clear();
  wire_->servers.erase(server);
}
const FakeFabricCounters& FakeFabricNetwork::counters() const { return wire_->counters; }

}  // namespace tailcast::fabric
