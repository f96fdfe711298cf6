#include "tailcast/fabric/fake_fabric.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/fabric/fake_channel.h"
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
    memory_->message_scope = nullptr;
    memory_->held.clear();                                // which hold the memory
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
  void SetScanner(Scanner scanner) override { memory_->scanner = std::move(scanner); }
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
  void ServeMessages(MessageHandler handler) override {
    TAILCAST_CHECK(memory_->options.loop != nullptr,
                   "an exporter without a loop takes no messages");
    memory_->handler = std::move(handler);
    memory_->message_scope = &scope_;
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
  Scope scope_;
};

class FakeConnector final : public Connector {
 public:
  FakeConnector(std::shared_ptr<Wire> wire, std::string name, EventLoop* loop)
      : wire_(std::move(wire)), name_(std::move(name)), loop_(loop) {}

  void Connect(const std::string& address, Duration timeout,
               Callback<void(Result<std::unique_ptr<Endpoint>>)> done) override {
    Dial<FakeClient>(
        address, timeout, std::move(done),
        [loop = loop_, name = name_](const std::shared_ptr<FakeMemory>& memory) {
          auto client = std::make_shared<FakeClient>();
          client->name = name;
          client->loop = loop;
          client->memory = memory;
          for (const FakeRegion& region : memory->regions) client->infos.push_back(region.info);
          std::erase_if(memory->clients, [](const auto& weak) { return weak.expired(); });
          memory->clients.push_back(client);
          return Result<std::shared_ptr<FakeClient>>(client);
        },
        [wire = wire_](std::shared_ptr<FakeClient> client) {
          return std::make_unique<FakeEndpoint>(wire, std::move(client));
        });
  }

  void OpenChannel(const std::string& address, Duration timeout,
                   Callback<void(Result<std::unique_ptr<Channel>>)> done) override {
    Dial<FakeChannelEnd>(
        address, timeout, std::move(done),
        [loop = loop_, name = name_](
            const std::shared_ptr<FakeMemory>& memory) -> Result<std::shared_ptr<FakeChannelEnd>> {
          if (memory->message_scope == nullptr) {
            return UnavailableError(memory->server + " takes no messages");
          }
          auto end = std::make_shared<FakeChannelEnd>();
          end->name = name;
          end->loop = loop;
          end->memory = memory;
          end->life = memory->life;
          std::erase_if(memory->channels, [](const auto& weak) { return weak.expired(); });
          memory->channels.push_back(end);
          return end;
        },
        [wire = wire_](std::shared_ptr<FakeChannelEnd> end) {
          return std::make_unique<FakeChannel>(wire, std::move(end));
        });
  }

 private:
  struct Pending {
    explicit Pending(EventLoop& loop) : timer(loop) {}
    UniqueFunction<void(const Status&)> refuse;
    Timer timer;
  };

  // Shakes hands with the server: `admit(memory)` there gives what both ends share, `make(end)`
  // here the port.
  template <typename End, typename Port, typename Admit, typename Make>
  void Dial(const std::string& address, Duration timeout,
            Callback<void(Result<std::unique_ptr<Port>>)> done, Admit admit, Make make) {
    const uint64_t id = next_id_++;
    Pending& pending = pending_.try_emplace(id, *loop_).first->second;
    const auto shared =
        std::make_shared<Callback<void(Result<std::unique_ptr<Port>>)>>(std::move(done));
    pending.refuse = [shared](const Status& refusal) { (*shared)(refusal); };
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
        Refuse(id, InvalidArgumentError("\"" + address + "\" is no address of the fake"));
      }));
      return;
    }
    pending.timer.After(timeout, scope_.Bind([this, id, address] {
      Refuse(id, DeadlineExceededError("no answer from " + address));
    }));
    using Answered = Callback<void(Result<std::shared_ptr<End>>)>;
    Answered answered = scope_.Bind([this, id, shared, make](Result<std::shared_ptr<End>> end) {
      if (!end.ok()) return Refuse(id, end.status());
      if (pending_.erase(id) == 0) return;  // it timed out
      (*shared)(std::unique_ptr<Port>(make(std::move(end).value())));
    });
    FakeLink& link = wire_->LinkOf(name_, server);
    if (link.requests_cut) return;
    wire_->After(wire_->Latency(link), [wire = wire_, loop = loop_, name = name_, server,
                                        incarnation, admit,
                                        answered = std::move(answered)]() mutable {
      const std::shared_ptr<FakeMemory> memory = wire->Find(server);
      auto serve = [wire, loop, name, server, incarnation, memory, admit,
                    answered = std::move(answered)]() mutable {
        Result<std::shared_ptr<End>> end = UnavailableError("nobody serves " + server);
        if (memory == nullptr || !memory->readable) {
        } else if (incarnation != ExporterIncarnation::kAny && memory->incarnation != incarnation) {
          end = UnavailableError("another incarnation of " + server + " is there");
        } else if (memory->regions[0].info.generation == Generation::kNone) {
          end = UnavailableError(server + " is going away");
        } else {
          end = admit(memory);
        }
        FakeLink& back = wire->LinkOf(name, server);
        if (back.answers_cut) return;
        wire->After(wire->Latency(back),
                    [loop, end = std::move(end), answered = std::move(answered)]() mutable {
                      if (answered.dropped()) return;  // and the loop may be gone
                      loop->Post(std::move(answered).With(std::move(end)));
                    });
      };
      // The process itself shakes hands, however its memory is read.
      if (memory != nullptr && memory->stopped) {
        memory->held.push_back(std::move(serve));
      } else {
        serve();
      }
    });
  }
  void Refuse(uint64_t id, const Status& refusal) {
    auto node = pending_.extract(id);
    if (node) node.mapped().refuse(refusal);  // else it timed out
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
void FakeFabricNetwork::SetEveryLink(const FakeLink& link) {
  wire_->default_link = link;
  for (auto& [ends, old] : wire_->links) {
    const bool requests_cut = old.requests_cut;
    const bool answers_cut = old.answers_cut;
    old = link;
    old.requests_cut = requests_cut;
    old.answers_cut = answers_cut;
  }
}
void FakeFabricNetwork::SetTrace(std::function<void(uint64_t)> trace) {
  wire_->trace = std::move(trace);
}
FakeLink& FakeFabricNetwork::link(const std::string& client, const std::string& server) {
  return wire_->LinkOf(client, server);
}
void FakeFabricNetwork::Cut(const std::string& client, const std::string& server, bool requests,
                            bool answers) {
  FakeLink& l = link(client, server);
  l.requests_cut = requests;
  l.answers_cut = answers;
}
void FakeFabricNetwork::MendAll() {
  for (auto& [ends, link] : wire_->links) link.requests_cut = link.answers_cut = false;
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
  memory->message_scope = nullptr;
  wire_->servers.erase(server);
}
const FakeFabricCounters& FakeFabricNetwork::counters() const { return wire_->counters; }

}  // namespace tailcast::fabric
