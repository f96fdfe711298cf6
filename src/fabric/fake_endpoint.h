// The client's end of the fake: an endpoint whose reads and watches are events on the wire.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/fake_wire.h"

namespace tailcast::fabric {

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(std::shared_ptr<FakeFabricNetwork::Wire> wire, std::shared_ptr<FakeClient> client)
      : wire_(std::move(wire)), client_(std::move(client)), loop_(client_->loop) {
    client_->endpoint = this;
  }
  ~FakeEndpoint() override { client_->endpoint = nullptr; }

  Capabilities capabilities() const override {
    return {.immediate = false,
            .watch = true,
            .cross_host = true,
            .scan = client_->memory->options.scan && client_->memory->scanner != nullptr,
            .word_atomic_bytes_max = kReadBytesMax,
            .registers_memory = true};
  }
  std::shared_ptr<char[]> Allocate(size_t bytes) override {
    allocated_.push_back({.memory = Endpoint::Allocate(bytes), .bytes = bytes});
    return allocated_.back().memory;
  }
  std::span<const RegionInfo> regions() const override {
    return connected() ? std::span<const RegionInfo>(client_->infos)
                       : std::span<const RegionInfo>();
  }
  bool connected() const override { return !client_->broken; }
  void set_read_timeout(Duration timeout) override { read_timeout_ = timeout; }

  void Read(std::span<const ReadDescriptor> reads) override {
    for (const ReadDescriptor& read : reads) {
      const Range range{.region = read.region, .length = read.length, .offset = read.offset};
      CheckIsQuiet(read);
      const Pending pending{
          .token = read.token, .destination = read.destination, .length = read.length};
      Start(AdmitRange(range), pending, [range](auto& wire, const auto& client, uint64_t id) {
        wire.AtServer(client->memory,
                      [&wire, client, range, id] { wire.ServeRead(client, range, id); });
      });
    }
    ArmTimeout();
  }
  void Scan(std::span<ScanRead* const> scans) override {
    TAILCAST_CHECK(capabilities().scan, "the server does not scan");
    for (ScanRead* const scan : scans) {
      const Pending pending{.token = scan->token, .scan = scan};
      Start(Admit(), pending,
            [request = scan->request](auto& wire, const auto& client, uint64_t id) {
              wire.AtServer(client->memory,
                            [&wire, client, request, id] { wire.ServeScan(client, request, id); });
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
  void OnAnswer(const FakeAnswer& answer) {
    wire_->Trace({answer.bytes.data(), answer.bytes.size()});
    const auto it = reads_.find(answer.id);
    if (it == reads_.end()) {  // it timed out: the bytes go nowhere, or where a device may write
      ++wire_->counters.late;
      const auto late = late_.extract(answer.id);
      if (late && answer.status == ReadStatus::kOk) {
        std::copy(answer.bytes.begin(), answer.bytes.end(), late.mapped().destination);
      }
      return;
    }
    const Pending& read = it->second;
    if (answer.status == ReadStatus::kOk && read.scan == nullptr) {
      std::copy(answer.bytes.begin(), answer.bytes.end(), read.destination);
    } else if (answer.status == ReadStatus::kOk) {
      if (!TakeScanned(*read.scan, answer)) {
        client_->broken = true;
        OnBroken();
        return;
      }
    }
    Complete(read.token, answer.status);
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
    uint64_t token = 0;
    char* destination = nullptr;  // of a read
    uint32_t length = 0;          // the same
    ScanRead* scan = nullptr;
    MonotonicTime deadline = {};
    bool lost = false;  // never to come, and it takes the queue with it
  };
  struct WatchState {
    explicit WatchState(EventLoop& loop) : timer(loop) {}
    Callback<void(WatchOutcome)> done;
    Timer timer;
  };

  // `serve` runs at the server, if it gets there.
  template <typename Serve>
  void Start(ReadStatus admitted, Pending pending, Serve serve) {
    ++queued_;
    if (admitted != ReadStatus::kOk) return Complete(pending.token, admitted);
    ++wire_->counters.reads;
    const uint64_t id = next_read_++;
    pending.deadline = loop_->Now() + read_timeout_;
    reads_[id] = pending;
    FakeLink& link = wire_->LinkOf(client_->name, client_->memory->server);
    if (link.requests_cut) {
      ++wire_->counters.cut;
      return;
    }
    wire_->After(wire_->Latency(link) + client_->memory->delay,
                 [wire = wire_.get(), client = client_, serve, id] { serve(*wire, client, id); });
  }
  // False: it has not the room.
  static bool TakeScanned(ScanRead& scan, const FakeAnswer& answer) {
    scan.found = answer.plan;
    auto from = answer.bytes.begin();
    for (uint32_t i = 0; i < answer.plan.count; ++i) {
      const uint32_t length = answer.plan.ranges[i].length;
      if (length > scan.parts[i].capacity) return false;
      if (!scan.released) std::copy_n(from, length, scan.parts[i].destination);
      from += length;
    }
    return true;
  }
  ReadStatus Admit() const {
    if (queued_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
    return connected() ? ReadStatus::kOk : ReadStatus::kUnreachable;
  }
  ReadStatus AdmitRange(const Range& read) const {
    if (queued_ >= kQueuedReadsMax) return ReadStatus::kOverloaded;
    const std::vector<RegionInfo>& infos = client_->infos;
    if (read.region >= infos.size() || read.length > kReadBytesMax ||
        read.offset > infos[read.region].size ||
        read.length > infos[read.region].size - read.offset) {
      return ReadStatus::kOutOfRange;
    }
    return Admit();
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
      if (IsAllocated(it->second.destination)) late_[it->first] = it->second;
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
  bool IsAllocated(const char* destination) const {
    return std::any_of(allocated_.begin(), allocated_.end(), [destination](const Allocated& one) {
      return std::less_equal<>()(one.memory.get(), destination) &&
             std::less<>()(destination, one.memory.get() + one.bytes);
    });
  }
  // As Allocate says: nobody reads where a read timed out.
  void CheckIsQuiet(const ReadDescriptor& read) const {
    for (const auto& [id, late] : late_) {
      TAILCAST_CHECK(std::less_equal<>()(read.destination + read.length, late.destination) ||
                         std::less_equal<>()(late.destination + late.length, read.destination),
                     "a read to where a device may still write");
    }
  }
  void Answer(uint64_t id, WatchOutcome outcome) {
    auto node = watches_.extract(id);
    if (!node) return;
    node.mapped().done(outcome);  // may destroy us
  }
  // The server's end of a watch that we gave up.
  void Forget(uint64_t id) {
    std::erase_if(client_->memory->watchers,
                  [&](const FakeWatcher& w) { return w.id == id && w.client.lock() == client_; });
  }

  const std::shared_ptr<FakeFabricNetwork::Wire> wire_;
  const std::shared_ptr<FakeClient> client_;
  EventLoop* const loop_;
  Duration read_timeout_ = Duration::Seconds(1);
  std::shared_ptr<Callback<void()>> ready_;
  std::map<uint64_t, Pending> reads_;  // by order of submission
  struct Allocated {
    std::shared_ptr<char[]> memory;
    size_t bytes = 0;
  };
  std::vector<Allocated> allocated_;
  // Reads that timed out, whose answers, if they come, land there all the same.
  std::map<uint64_t, Pending> late_;
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
void AtEndpoint(const std::shared_ptr<FakeClient>& client, Action action) {
  if (client->endpoint == nullptr) return;
  client->loop->Post(client->endpoint->scope().Bind(
      [endpoint = client->endpoint, action = std::move(action)] { action(*endpoint); }));
}

}  // namespace tailcast::fabric
