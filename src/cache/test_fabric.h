// The fabric port in memory for this module's tests: reads inside the call or delayed, torn between
// two moments at 8-byte words in random order, servers that die, stop or restart empty. It has no
// message channels: writes are calls.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::cache {

class TestFabric {
 public:
  explicit TestFabric(uint64_t seed) : rng(seed) {}

  struct Host {
    std::vector<std::vector<uint64_t>> regions;
    std::vector<fabric::RegionInfo> infos;
    fabric::Scanner scanner;
    bool listening = false;
    bool reachable = true;  // false: reads fail, connections break
    bool watchable = true;
    Duration delay;  // of each read; immediate endpoints ignore it
    // What the next reads come to, one each; the same of immediate endpoints.
    std::deque<fabric::ReadStatus> next_statuses;
    uint64_t life = 0;
    uint64_t reads = 0, bytes = 0;
    struct Watch {
      uint64_t id, offset;
      uint32_t last_seen;
      fabric::RegionId region;
      std::function<void(fabric::WatchOutcome)> notify;  // posts
    };
    std::vector<Watch> watches;
  };

  Rng rng;
  bool immediate = true;
  bool scans = false;             // of connections that are made later; not immediate ones
  bool registers_memory = false;  // the same
  // Share of reads of which some words are copied now and some later. Later is: after `between` ran
  // (immediate), or when the read completes.
  double torn = 0;
  std::function<void(const std::string& host)> between;
  // Reads of lower regions are never torn.
  fabric::RegionId torn_from_region = 0;
  std::map<std::string, Host> hosts;
  uint64_t next_watch = 1;

  // The process is gone: connections break, watches answer kUnreachable.
  void Kill(const std::string& name) {
    Host& host = hosts[name];
    host.listening = host.reachable = false;
    ++host.life;
    for (Host::Watch& watch : std::exchange(host.watches, {})) {
      watch.notify(fabric::WatchOutcome::kUnreachable);
    }
  }
};

class TestExporter : public fabric::Exporter {
 public:
  TestExporter(TestFabric* net, std::string name) : net_(net), name_(std::move(name)) {
    TestFabric::Host& host = net_->hosts[name_];
    host.regions.clear();
    host.infos.clear();
    host.reachable = true;
    ++host.life;
  }
  Result<std::span<char>> AddRegion(fabric::RegionId, uint64_t size) override {
    TestFabric::Host& host = net_->hosts[name_];
    host.regions.emplace_back(size / 8);
    host.infos.push_back({size, fabric::Generation(host.life)});
    return std::span<char>(reinterpret_cast<char*>(host.regions.back().data()), size);
  }
  void SetScanner(fabric::Scanner scanner) override {
    net_->hosts[name_].scanner = std::move(scanner);
  }
  void ServeMessages(fabric::MessageHandler) override {}  // its clients write by calls
  Result<std::vector<std::string>> Listen() override {
    net_->hosts[name_].listening = true;
    return std::vector<std::string>{"test:" + name_};
  }
  void Notify(fabric::RegionId region, uint64_t offset) override {
    TestFabric::Host& host = net_->hosts[name_];
    const auto word = static_cast<uint32_t>(host.regions[region][offset / 8]);
    auto waiting = std::exchange(host.watches, {});
    for (TestFabric::Host::Watch& watch : waiting) {
      if (watch.region == region && watch.offset == offset && watch.last_seen != word) {
        watch.notify(fabric::WatchOutcome::kChanged);
      } else {
        host.watches.push_back(std::move(watch));
      }
    }
  }
  void Beat() override {}
  void Invalidate() override { net_->Kill(name_); }
  void Renew() override {
    TestFabric::Host& host = net_->hosts[name_];
    host.reachable = host.listening = true;
    ++host.life;
  }

 private:
  TestFabric* net_;
  std::string name_;
};

class TestEndpoint : public fabric::Endpoint {
 public:
  TestEndpoint(TestFabric* net, EventLoop* loop, std::string name)
      : net_(net), loop_(loop), name_(std::move(name)) {
    life_ = net_->hosts[name_].life;
    infos_ = net_->hosts[name_].infos;
  }
  fabric::Capabilities capabilities() const override {
    const TestFabric::Host& host = net_->hosts[name_];
    const bool scan = net_->scans && host.scanner != nullptr;
    return {.immediate = net_->immediate,
            .watch = host.watchable,
            .cross_host = true,
            .scan = scan,
            .registers_memory = net_->registers_memory};
  }
  std::span<const fabric::RegionInfo> regions() const override { return infos_; }
  bool connected() const override { return net_->hosts[name_].life == life_; }
  void set_read_timeout(Duration timeout) override { timeout_ = timeout; }

  void Read(std::span<const fabric::ReadDescriptor> reads) override {
    TestFabric::Host& host = net_->hosts[name_];
    for (const fabric::ReadDescriptor& read : reads) {
      ++host.reads;
      host.bytes += read.length;
      if (net_->immediate) {
        std::vector<bool> done = Copy(read, {});
        if (!done.empty() && net_->between) net_->between(name_);
        if (!done.empty()) Copy(read, done);
        completions_.push_back({read.token, Check(read)});
        continue;
      }
      if (!host.next_statuses.empty()) {
        const fabric::ReadStatus status = host.next_statuses.front();
        host.next_statuses.pop_front();
        const bool late = status == fabric::ReadStatus::kTimeout;
        loop_->After(late ? timeout_ : Duration(),
                     scope_.Bind([this, read, status] { Complete(read.token, status); }));
        continue;
      }
      const std::vector<bool> done = Copy(read, {});
      const bool late = host.delay > timeout_;
      loop_->After(late ? timeout_ : host.delay, scope_.Bind([this, read, done, late] {
        const fabric::ReadStatus status = Check(read);
        if (status == fabric::ReadStatus::kOk && !late) Copy(read, done);
        Complete(read.token, late ? fabric::ReadStatus::kTimeout : status);
      }));
    }
  }
  // What it finds is found now and copied twice, so that it may lie somewhere else by then. Memory
  // that was not released is written all the while.
  void Scan(std::span<fabric::ScanRead* const> scans) override {
    TestFabric::Host& host = net_->hosts[name_];
    std::vector<std::span<const char>> views;
    for (const std::vector<uint64_t>& region : host.regions) {
      views.emplace_back(reinterpret_cast<const char*>(region.data()), region.size() * 8);
    }
    for (fabric::ScanRead* const scan : scans) {
      ++host.reads;
      const fabric::ScanPlan plan =
          host.reachable ? host.scanner(scan->request, views) : fabric::ScanPlan{};
      std::vector<fabric::ReadDescriptor> parts;
      std::vector<std::vector<bool>> done;
      for (uint32_t i = 0; i < plan.count; ++i) {
        const fabric::Range& range = plan.ranges[i];
        host.bytes += range.length;
        TAILCAST_CHECK(range.length <= scan->parts[i].capacity, "a scan without room");
        parts.push_back({range.region, range.length, range.offset, scan->parts[i].destination, 0});
        done.push_back(scan->released ? std::vector<bool>() : Copy(parts.back(), {}));
      }
      const bool late = host.delay > timeout_;
      loop_->After(late ? timeout_ : host.delay, scope_.Bind([this, scan, plan, parts, done, late] {
        auto status = fabric::ReadStatus::kOk;
        for (const fabric::ReadDescriptor& part : parts) status = std::max(status, Check(part));
        if (parts.empty()) status = Check({});
        if (late) status = fabric::ReadStatus::kTimeout;
        for (size_t i = 0; i < parts.size() && status == fabric::ReadStatus::kOk; ++i) {
          if (!scan->released) Copy(parts[i], done[i]);
        }
        scan->found = plan;
        Complete(scan->token, status);
      }));
    }
  }
  size_t Poll(std::span<fabric::Completion> out) override {
    const size_t count = std::min(out.size(), completions_.size());
    std::copy_n(completions_.begin(), count, out.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }
  void SetReadyCallback(Callback<void()> ready) override { ready_ = std::move(ready); }

  uint64_t Watch(fabric::RegionId region, uint64_t offset, uint32_t last_seen, Duration timeout,
                 Callback<void(fabric::WatchOutcome)> done) override {
    TestFabric::Host& host = net_->hosts[name_];
    const uint64_t id = net_->next_watch++;
    callbacks_[id] = std::move(done);
    auto deliver = std::make_shared<Callback<void(fabric::WatchOutcome)>>(
        scope_.Bind([this, id](fabric::WatchOutcome outcome) {
          auto found = callbacks_.extract(id);
          if (!found.empty()) found.mapped()(outcome);
        }));
    auto notify = [loop = loop_, deliver](fabric::WatchOutcome outcome) {
      if (*deliver) loop->Post(std::exchange(*deliver, nullptr).With(outcome));
    };
    if (!host.reachable || !connected()) {
      notify(fabric::WatchOutcome::kUnreachable);
    } else if (static_cast<uint32_t>(host.regions[region][offset / 8]) != last_seen) {
      notify(fabric::WatchOutcome::kChanged);
    } else {
      host.watches.push_back({id, offset, last_seen, region, notify});
      loop_->After(timeout, scope_.Bind([notify] { notify(fabric::WatchOutcome::kTimeout); }));
    }
    return id;
  }
  void CancelWatch(uint64_t id) override { callbacks_.erase(id); }

 private:
  void Complete(uint64_t token, fabric::ReadStatus status) {
    completions_.push_back({token, status});
    if (completions_.size() == 1 && ready_) ready_();
  }
  fabric::ReadStatus Check(const fabric::ReadDescriptor& read) const {
    const TestFabric::Host& host = net_->hosts[name_];
    if (host.life != life_ || !host.reachable) return fabric::ReadStatus::kUnreachable;
    if (read.region >= infos_.size() || read.offset > infos_[read.region].size ||
        read.length > infos_[read.region].size - read.offset) {
      return fabric::ReadStatus::kOutOfRange;
    }
    return fabric::ReadStatus::kOk;
  }
  // Copies the words that are not `done` yet; with luck only some, and says which. Empty: all.
  std::vector<bool> Copy(const fabric::ReadDescriptor& read, const std::vector<bool>& done) {
    if (Check(read) != fabric::ReadStatus::kOk) return {};
    const char* region =
        reinterpret_cast<const char*>(net_->hosts[name_].regions[read.region].data());
    const uint64_t first = read.offset / 8, last = (read.offset + read.length + 7) / 8;
    const bool tear = done.empty() && net_->torn > 0 && read.region >= net_->torn_from_region &&
                      net_->rng.Chance(net_->torn);
    std::vector<bool> copied(tear ? last - first : 0);
    // Whole cache lines go early or late, sometimes single words.
    bool early = true;
    for (uint64_t word = first; word < last; ++word) {
      if (tear && (word % 8 == 0 || net_->rng.Chance(0.05))) early = net_->rng.Chance(0.5);
      if (tear && !early) continue;
      if (!done.empty() && done[word - first]) continue;
      const uint64_t from = std::max(word * 8, read.offset);
      const uint64_t to = std::min(word * 8 + 8, read.offset + read.length);
      std::copy_n(region + from, to - from, read.destination + (from - read.offset));
      if (tear) copied[word - first] = true;
    }
    return copied;
  }

  TestFabric* net_;
  EventLoop* loop_;
  std::string name_;
  uint64_t life_ = 0;
  Duration timeout_ = Duration::Seconds(1);
  std::vector<fabric::RegionInfo> infos_;
  std::vector<fabric::Completion> completions_;
  Callback<void()> ready_;
  std::map<uint64_t, Callback<void(fabric::WatchOutcome)>> callbacks_;
  Scope scope_;
};

class TestConnector : public fabric::Connector {
 public:
  TestConnector(TestFabric* net, EventLoop* loop) : net_(net), loop_(loop) {}
  void OpenChannel(const std::string& address, Duration,
                   Callback<void(Result<std::unique_ptr<fabric::Channel>>)> done) override {
    loop_->After(Duration::Micros(50), scope_.Bind([address, done = std::move(done)]() mutable {
      done(UnavailableError(address + " takes no messages"));
    }));
  }
  void Connect(const std::string& address, Duration timeout,
               Callback<void(Result<std::unique_ptr<fabric::Endpoint>>)> done) override {
    const std::string name = address.substr(5);
    const bool listening = net_->hosts[name].listening && net_->hosts[name].reachable;
    (void)timeout;
    loop_->After(Duration::Micros(50), scope_.Bind([net = net_, loop = loop_, name, listening,
                                                    done = std::move(done)]() mutable {
      if (!listening || !net->hosts[name].listening) {
        done(UnavailableError("nobody listens at " + name));
      } else {
        done(std::unique_ptr<fabric::Endpoint>(std::make_unique<TestEndpoint>(net, loop, name)));
      }
    }));
  }

 private:
  TestFabric* net_;
  EventLoop* loop_;
  Scope scope_;
};

}  // namespace tailcast::cache
