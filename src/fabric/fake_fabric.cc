#include "tailcast/fabric/fake_fabric.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "tailcast/fabric/fake_endpoint.h"
#include "tailcast/fabric/fake_wire.h"

namespace tailcast::fabric {
namespace {

using Wire = FakeFabricNetwork::Wire;

constexpr uint64_t kPageBytes = 4096;

class FakeExporter final : public Exporter {
 public:
  FakeExporter(std::shared_ptr<Wire> wire, std::string server, FakeExporterOptions options)
      : wire_(std::move(wire)), memory_(std::make_shared<FakeMemory>()) {
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
  const std::shared_ptr<FakeMemory> memory_;
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
    using Answered = Callback<void(const Status&, std::shared_ptr<FakeClient>)>;
    Answered answered =
        scope_.Bind([this, id](const Status& refusal, std::shared_ptr<FakeClient> client) {
          if (client == nullptr) return Answer(id, refusal);
          Answer(id, std::unique_ptr<Endpoint>(new FakeEndpoint(wire_, std::move(client))));
        });
    FakeLink& link = wire_->LinkOf(name_, server);
    if (link.requests_cut) return;
    wire_->After(wire_->Latency(link), [wire = wire_, loop = loop_, name = name_, server,
                                        incarnation, answered = std::move(answered)]() mutable {
      const std::shared_ptr<FakeMemory> memory = wire->Find(server);
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
        std::shared_ptr<FakeClient> client;
        if (refusal.ok()) {
          client = std::make_shared<FakeClient>();
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
