#include "tailcast/fabric/connect.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/rng.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/thread_priority.h"
#include "tailcast/fabric/driver.h"

namespace tailcast::fabric {
namespace {

constexpr char kPopulatorName[] = "fabric-pages";
// See Connector::FailedSlowly.
constexpr Duration kSlowFailure = Duration::Millis(200);
constexpr Duration kSlowFailureKept = Duration::Seconds(60);

class RealExporter final : public Exporter {
 public:
  explicit RealExporter(ExporterOptions options)
      : options_(std::move(options)),
        memory_(ExporterIncarnation{RandomSeed() | 1}, options_.beat_timeout),
        reactor_("fabric-server") {
    reactor_.Call([] { RunBeforeOthers(); });
  }

  void ServeMessages(MessageHandler handler) override {
    TAILCAST_CHECK(options_.loop != nullptr, "an exporter without a loop takes no messages");
    messages_ = std::make_unique<MessageService>(options_.loop, std::move(handler));
  }

  Result<std::span<char>> AddRegion(RegionId id, uint64_t size) override {
    return memory_.Add(id, size);
  }

  void SetScanner(Scanner scanner) override { scanner_ = std::move(scanner); }
  void SetScanPrefetch(ScanPrefetch prefetch) override { scan_prefetch_ = std::move(prefetch); }

  Result<std::vector<std::string>> Listen() override {
    TAILCAST_RETURN_IF_ERROR(memory_.Seal().WithContext(options_.name));
    char suffix[32];
    std::snprintf(suffix, sizeof(suffix), "#%016llx",
                  static_cast<unsigned long long>(memory_.incarnation()));
    std::vector<std::string> addresses;
    const DoorContext context{.options = &options_,
                              .reactor = &reactor_,
                              .memory = &memory_,
                              .messages = messages_.get(),
                              .scanner = std::move(scanner_),
                              .scan_prefetch = std::move(scan_prefetch_)};
    for (const Driver* driver : Drivers()) {
      std::unique_ptr<Door> door = driver->MakeDoor(context);
      if (door == nullptr) continue;
      Result<std::string> where = door->Listen();
      if (!where.ok()) return where.status().WithContext(options_.name);
      addresses.push_back(std::string(driver->scheme()) + ":" + *where + suffix);
      doors_.push_back(std::move(door));
    }
    if (addresses.empty()) {
      return InvalidArgumentError(options_.name +
                                  ": an exporter needs a socket path or a tcp port");
    }
    populator_ = std::jthread([this](const std::stop_token& stop) { Populate(stop); });
    return addresses;
  }

  void Notify(RegionId id, uint64_t offset) override {
    if (id >= memory_.regions().size() || offset + 8 > memory_.regions()[id].size) return;
    for (const auto& door : doors_) door->Notify(id, offset);
  }
  void Beat() override { memory_.Beat(ReadMonotonicClock()); }
  void Invalidate() override {
    if (messages_ != nullptr) messages_->Close();
    memory_.Invalidate();
    for (const auto& door : doors_) door->CloseConnections();
  }
  void Renew() override {
    if (messages_ != nullptr) messages_->Open();
    for (const auto& door : doors_) door->Renew();
    memory_.Renew();
  }

 private:
  // A quarter of a processor: a server of many GB is read and written while this goes on. Not
  // before others, who wait for none of it, and not behind them either, because it holds what those
  // wait for who map memory or start threads.
  void Populate(const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), kPopulatorName);
    RunAmongOthers();
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    for (MonotonicTime begin = ReadMonotonicClock(); memory_.PopulateNext();
         begin = ReadMonotonicClock()) {
      const Duration pause = (ReadMonotonicClock() - begin) * 3;
      stopped.wait_for(lock, stop, std::chrono::microseconds(pause.micros()), [] { return false; });
      if (stop.stop_requested()) return;
    }
  }

  const ExporterOptions options_;
  Scanner scanner_;             // until Listen
  ScanPrefetch scan_prefetch_;  // the same
  RegionMemory memory_;
  std::unique_ptr<MessageService> messages_;
  Reactor reactor_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::jthread populator_;  // ends first
};

class RealConnector final : public Connector {
 public:
  RealConnector(ThreadLoop* loop, ConnectorOptions options)
      : loop_(loop),
        options_(std::move(options)),
        reactor_(std::make_shared<Reactor>("fabric-client")) {}
  ~RealConnector() override {
    for (auto& [id, pending] : pending_) ShutDown(std::move(pending.session));
  }

  void Connect(const std::string& text, Duration timeout,
               Callback<void(Result<std::unique_ptr<Endpoint>>)> done) override {
    Begin(text, timeout, std::move(done), &Driver::Dial,
          [this](ClientSession& session) { return session.MakeEndpoint(reactor_); });
  }

  void OpenChannel(const std::string& text, Duration timeout,
                   Callback<void(Result<std::unique_ptr<Channel>>)> done) override {
    Begin(text, timeout, std::move(done), &Driver::DialChannel,
          [this](ChannelSession& session) { return session.MakeChannel(reactor_); });
  }

  std::string FailedSlowly(const std::string& address) const override {
    const auto it = slow_failures_.find(address);
    return it == slow_failures_.end() || it->second.until <= loop_->Now() ? "" : it->second.why;
  }

 private:
  struct Pending {
    explicit Pending(EventLoop& loop) : timer(loop) {}
    std::shared_ptr<ClientEnd> session;
    std::string address;
    MonotonicTime began;
    UniqueFunction<void(const Status&)> done;
    Timer timer;
  };
  struct SlowFailure {
    std::string why;
    MonotonicTime until;
  };

  template <typename Session, typename Port, typename MakePort>
  void Begin(const std::string& text, Duration timeout,
             Callback<void(Result<std::unique_ptr<Port>>)> done,
             Result<std::shared_ptr<Session>> (Driver::*dial)(const DialContext&, const Target&)
                 const,
             MakePort make_port) {
    const uint64_t id = next_id_++;
    Pending& pending = pending_.try_emplace(id, *loop_).first->second;
    pending.address = text;
    pending.began = loop_->Now();
    std::shared_ptr<Session> session;
    Result<Address> address = ParseAddress(text);
    Status error = address.status();
    if (error.ok()) {
      const DialContext context{.loop = loop_,
                                .reactor = reactor_.get(),
                                .read_timeout = options_.read_timeout,
                                .key = options_.key};
      Result<std::shared_ptr<Session>> made = (address->driver->*dial)(context, address->target);
      error = made.status();
      if (error.ok()) session = std::move(made).value();
    }
    pending.session = session;
    pending.done = [session, make_port, done = std::move(done)](const Status& status) mutable {
      if (status.ok()) {
        done(make_port(*session));
      } else {
        done(status);
      }
    };
    if (!error.ok()) {
      pending.timer.After(Duration(), scope_.Bind([this, id, error] { Answer(id, error); }));
      return;
    }
    pending.timer.After(timeout, scope_.Bind([this, id, text] {
      Answer(id, DeadlineExceededError("no answer from " + text));
    }));
    Callback<void(const Status&)> ready =
        scope_.Bind([this, id](const Status& status) { Answer(id, status); });
    const Scope& scope = session->scope();
    Callback<void(Status)> on_reactor =
        scope.Bind([loop = loop_, ready = std::move(ready)](Status status) mutable {
          loop->Post(std::move(ready).With(std::move(status)));
        });
    reactor_->Post(scope.Bind([session, on_reactor = std::move(on_reactor)]() mutable {
      session->Start(std::move(on_reactor));
    }));
  }

  void ShutDown(std::shared_ptr<ClientEnd> session) {
    if (session == nullptr) return;
    const Scope& scope = session->scope();
    reactor_->Post(scope.Bind([session = std::move(session)] { session->Shutdown(); }));
  }

  void Answer(uint64_t id, const Status& status) {
    auto node = pending_.extract(id);
    if (!node) return;  // timed out
    Pending& pending = node.mapped();
    if (!status.ok()) ShutDown(std::move(pending.session));
    slow_failures_.erase(pending.address);
    const MonotonicTime now = loop_->Now();
    if (!status.ok() && now - pending.began >= kSlowFailure) {
      std::erase_if(slow_failures_, [now](const auto& one) { return one.second.until <= now; });
      slow_failures_[pending.address] = {std::string(status.message()), now + kSlowFailureKept};
    }
    pending.done(status);
  }

  ThreadLoop* const loop_;
  const ConnectorOptions options_;
  const std::shared_ptr<Reactor> reactor_;
  std::map<uint64_t, Pending> pending_;
  std::map<std::string, SlowFailure> slow_failures_;  // by address
  uint64_t next_id_ = 1;
  Scope scope_;
};

// An address with its driver's place in the order; 0 is the first.
struct Ranked {
  size_t rank = 0;
  bool in_sight = true;
  std::string address;
};
std::vector<Ranked> Rank(const std::vector<std::string>& addresses, const std::string& prefer) {
  const std::vector<const Driver*> drivers = Drivers();
  std::vector<Ranked> ranked;
  for (const std::string& text : addresses) {
    // Addresses of forms that nobody here knows come last, as they stand.
    Ranked one{.rank = drivers.size() + 1, .in_sight = true, .address = text};
    if (const Result<Address> address = ParseAddress(text); address.ok()) {
      one.rank =
          1 + static_cast<size_t>(std::find(drivers.begin(), drivers.end(), address->driver) -
                                  drivers.begin());
      one.in_sight = address->driver->InSight(address->target.where);
    }
    if (!prefer.empty() && text.starts_with(prefer + ":")) {
      one.rank = 0;
      one.in_sight = true;
    }
    ranked.push_back(std::move(one));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
  return ranked;
}

// Of endpoints and channels alike.
template <typename Port, typename Best>
struct BestAttempt {
  using Try = void (Connector::*)(const std::string& address, Duration timeout,
                                  Callback<void(Result<std::unique_ptr<Port>>)> done);
  Connector* connector;
  Try connect;
  std::vector<Ranked> ranked;          // the best first
  std::vector<std::string> why_not;    // of each of them; empty: nothing is known against it
  std::vector<size_t> order;           // in which they are tried
  std::vector<size_t>::iterator next;  // of them
  Duration timeout;
  Callback<void(Result<Best>)> done;
  Scope scope;  // lives as long as the callback that holds the attempt

  // Past those that can't lead there.
  void SkipToNext() {
    for (; next != order.end() && !ranked[*next].in_sight; ++next) {
      why_not[*next] = "not from this host";
    }
  }
  // What is better than this one, and why it is not that. Others may have been tried before it.
  std::string PassedOver(size_t used) const {
    std::string text;
    for (size_t i = 0; i < used; ++i) {
      if (!text.empty()) text += "; ";
      text.append(SchemeOf(ranked[i].address)).append(": ").append(why_not[i]);
    }
    return text;
  }
};

template <typename Port, typename Best>
void TryNext(std::shared_ptr<BestAttempt<Port, Best>> attempt) {
  const size_t place = *attempt->next++;
  const std::string address = attempt->ranked[place].address;
  Connector* connector = attempt->connector;
  const auto connect = attempt->connect;
  const Duration timeout = attempt->timeout;
  const Scope& scope = attempt->scope;
  (connector->*connect)(
      address, timeout, scope.Bind([attempt, place](Result<std::unique_ptr<Port>> port) mutable {
        if (port.ok()) {
          attempt->done(Best{std::move(port).value(),
                             {attempt->ranked[place].address, attempt->PassedOver(place)}});
          return;
        }
        attempt->why_not[place] = port.status().message();
        attempt->SkipToNext();
        if (attempt->next == attempt->order.end()) {
          attempt->done(port.status());
        } else {
          TryNext(std::move(attempt));
        }
      }));
}

template <typename Port, typename Best>
void TryBest(Connector* connector, typename BestAttempt<Port, Best>::Try connect,
             const std::vector<std::string>& addresses, const std::string& prefer, Duration timeout,
             Callback<void(Result<Best>)> done) {
  auto attempt = std::make_shared<BestAttempt<Port, Best>>();
  attempt->connector = connector;
  attempt->connect = connect;
  attempt->ranked = Rank(addresses, prefer);
  // Without any, the connector says what is wrong.
  if (addresses.empty()) attempt->ranked.emplace_back();
  attempt->timeout = timeout;
  attempt->done = std::move(done);
  for (const Ranked& one : attempt->ranked) {
    attempt->order.push_back(attempt->order.size());
    attempt->why_not.push_back(one.in_sight ? connector->FailedSlowly(one.address) : "");
  }
  // Nobody waits again and again for a way that leads nowhere while there is another one.
  std::stable_partition(attempt->order.begin(), attempt->order.end(),
                        [&](size_t place) { return attempt->why_not[place].empty(); });
  attempt->next = attempt->order.begin();
  attempt->SkipToNext();
  // With none of them usable here, the first says best what is wrong.
  if (attempt->next == attempt->order.end()) attempt->next = attempt->order.begin();
  TryNext(std::move(attempt));
}

}  // namespace

std::unique_ptr<Exporter> MakeExporter(ExporterOptions options) {
  return std::make_unique<RealExporter>(std::move(options));
}

std::unique_ptr<Connector> MakeConnector(ThreadLoop* loop, ConnectorOptions options) {
  return std::make_unique<RealConnector>(loop, std::move(options));
}

std::string_view SchemeOf(const std::string& address) {
  return std::string_view(address).substr(0, address.find(':'));
}

std::string ReasonOf(const Way& way) {
  return way.passed_over.empty() ? "the fastest that the server offers" : way.passed_over;
}

std::vector<std::string> OrderAddresses(const std::vector<std::string>& addresses,
                                        const std::string& prefer) {
  std::vector<std::string> ordered;
  for (Ranked& one : Rank(addresses, prefer)) {
    if (one.in_sight) ordered.push_back(std::move(one.address));
  }
  return ordered;
}

std::vector<std::string> BetterAddresses(const std::vector<std::string>& addresses,
                                         const std::string& prefer, const std::string& current) {
  std::vector<std::string> better;
  bool in_sight = false;
  for (Ranked& one : Rank(addresses, prefer)) {
    if (one.address == current) break;
    in_sight |= one.in_sight;
    better.push_back(std::move(one.address));
  }
  return in_sight ? better : std::vector<std::string>();
}

void ConnectBest(Connector* connector, const std::vector<std::string>& addresses,
                 const std::string& prefer, Duration timeout,
                 Callback<void(Result<BestEndpoint>)> done) {
  TryBest<Endpoint>(connector, &Connector::Connect, addresses, prefer, timeout, std::move(done));
}

void OpenBestChannel(Connector* connector, const std::vector<std::string>& addresses,
                     const std::string& prefer, Duration timeout,
                     Callback<void(Result<BestChannel>)> done) {
  TryBest<Channel>(connector, &Connector::OpenChannel, addresses, prefer, timeout, std::move(done));
}

}  // namespace tailcast::fabric
