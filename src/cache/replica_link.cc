#include "tailcast/cache/replica_link.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"

namespace tailcast::cache {

using fabric::ReadDescriptor;
using fabric::ReadStatus;

namespace {

const Logger kLog("cache");

constexpr int kTokenIndexBits = 24;
constexpr Duration kBetterAfterMax = Duration::Seconds(900);

}  // namespace

// The geometry or the heartbeat.
class ReplicaLink::PageRead : public FabricRead {
 public:
  using OnPage = void (ReplicaLink::*)(ReadStatus status, const char* page);
  PageRead(ReplicaLink* link, OnPage on_page) : link_(link), on_page_(on_page) {}
  void OnCompleted(Ptr self, ReadStatus status) override {
    (void)self;  // the page lives until it was looked at
    (link_->*on_page_)(status, page_.data());
  }
  void OnLost() override {}
  char* page() { return page_.data(); }

 private:
  ReplicaLink* const link_;
  const OnPage on_page_;
  std::array<char, layout::kHeaderBytes> page_{};
};

std::shared_ptr<ReadPlaces> ReadPlaces::Make(fabric::Endpoint& endpoint) {
  if (!endpoint.capabilities().registers_memory) return nullptr;
  std::shared_ptr<char[]> memory = endpoint.Allocate(size_t{kCount} * kBytes);
  if (memory == nullptr) return nullptr;
  return std::shared_ptr<ReadPlaces>(new ReadPlaces(std::move(memory)));
}

ReadPlaces::ReadPlaces(std::shared_ptr<char[]> memory) : memory_(std::move(memory)) {
  for (uint32_t place = kCount; place > 0; --place) free_.push_back(place - 1);
}

// The endpoint may be in the middle of a callback, and may write into the reads' memory as long as
// it lives.
struct ReplicaLink::Remains {
  std::vector<FabricRead::Ptr> reads;
  std::unique_ptr<fabric::Endpoint> endpoint;  // destroyed first
};

void Outbox::SendAll() {
  for (ReplicaLink* link : std::exchange(links_, {})) {
    if (link != kGone) link->SendBatch();
  }
}

ReplicaLink::ReplicaLink(ClientContext& context, fabric::Connector& fabric, rpc::Connector& rpc,
                         Replica replica)
    : context_(context),
      fabric_(fabric),
      replica_(std::move(replica)),
      standing_{replica_.whole, replica_.votes_in_other},
      rpc_(replica_.rpc_address.empty() ? nullptr : rpc.MakeClient(replica_.rpc_address, "")),
      writes_(context, fabric, rpc_.get(), replica_),
      better_after_(context.options.better_address_interval),
      retry_(context.loop),
      better_(context.loop),
      heart_(context.options.heartbeat_dead),
      heartbeat_(context.loop) {}

ReplicaLink::~ReplicaLink() {
  if (state_ == State::kReady) CountReady(false);
  context_.outbox.Remove(this);
  endpoint_.reset();  // before the reads' memory
}

void ReplicaLink::Become(State state) {
  const bool fits = state == State::kRetired || state == State::kIdle ||
                    (state == State::kConnecting && state_ == State::kIdle) ||
                    (state == State::kReady && state_ == State::kConnecting);
  TAILCAST_CHECK(fits && state_ != State::kRetired, "a replica's link takes no such step");
  if (state_ == State::kReady) CountReady(false);
  if (state == State::kReady) CountReady(true);
  state_ = state;
}

void ReplicaLink::CountReady(bool ready) {
  if (ready) {
    ++context_.counters.ready_replicas;
  } else {
    --context_.counters.ready_replicas;
  }
  if (immediate_) context_.immediate_replicas += ready ? 1 : -1;
}

// ---- Connection ----

void ReplicaLink::Connect() {
  if (replica_.fabric_addresses.empty()) return;
  retry_.Cancel();
  Become(State::kConnecting);
  std::vector<std::string> addresses = replica_.fabric_addresses;
  const std::string misleading = std::exchange(misleading_, {});
  if (addresses.size() > 1) std::erase(addresses, misleading);
  fabric::ConnectBest(
      &fabric_, addresses, "", context_.options.connect_timeout,
      connection_.Bind([this, misleading](Result<fabric::BestEndpoint> best) {
        if (best.ok() && IsBetter(misleading, best->way.address)) {
          std::string& passed_over = best->way.passed_over;
          if (!passed_over.empty()) passed_over += "; ";
          passed_over.append(fabric::SchemeOf(misleading)).append(": it did not lead to the cache");
        }
        OnConnected(std::move(best));
      }));
}

bool ReplicaLink::IsBetter(const std::string& address, const std::string& current) const {
  const std::vector<std::string> better =
      fabric::BetterAddresses(replica_.fabric_addresses, "", current);
  return std::find(better.begin(), better.end(), address) != better.end();
}

void ReplicaLink::ConnectAfter(Duration delay) {
  retry_.After(delay, scope_.Bind([this] { Connect(); }));
}

void ReplicaLink::OnConnected(Result<fabric::BestEndpoint> best) {
  if (!best.ok()) {
    const Status& status = best.status();
    const bool no_key = IsPermissionDenied(status);
    ++(no_key ? context_.counters.connect_no_key : context_.counters.connect_failed);
    if (no_key && !std::exchange(told_no_key_, true)) {
      kLog.Warn("replica ", replica_.name, ": ", status, "; it is tried again and again");
    } else {
      kLog.Debug("replica ", replica_.name, ": ", status);
    }
    OnConnectFailed();
    return;
  }
  told_no_key_ = false;
  endpoint_ = std::move(best->endpoint);
  way_ = std::move(best->way);
  immediate_ = endpoint_->capabilities().immediate;
  scans_ = endpoint_->capabilities().scan;
  endpoint_->set_read_timeout(kReadDeadlineMax);
  if (endpoint_->regions().size() <= layout::kDataRegion) {
    kLog.Warn("replica ", replica_.name, " exports ", endpoint_->regions().size(),
              " regions; a cache server has two");
    ++context_.counters.connect_not_a_cache;
    OnMisled();
    return;
  }
  if (!immediate_) endpoint_->SetReadyCallback(connection_.Bind([this] { OnCompletions(); }));
  ReadPage(&ReplicaLink::OnGeometry);
}

void ReplicaLink::ReadPage(void (ReplicaLink::*on_page)(ReadStatus status, const char* page)) {
  ReadDescriptor descriptor{layout::kIndexRegion, layout::kHeaderBytes, 0, nullptr, 0};
  if (immediate_) {
    char page[layout::kHeaderBytes];
    descriptor.destination = page;
    const ReadStatus status = ReadNow(std::span(&descriptor, 1));
    (this->*on_page)(status, page);
    return;
  }
  auto* const read = new PageRead(this, on_page);
  descriptor.destination = read->page();
  Submit(FabricRead::Ptr(read), std::span(&descriptor, 1));
}

void ReplicaLink::OnGeometry(ReadStatus status, const char* page) {
  std::optional<layout::Geometry> geometry;
  // Empty when the connection has broken since the page was read.
  const std::span<const fabric::RegionInfo> regions = endpoint_->regions();
  if (status != ReadStatus::kOk) {
    CountReadError(status);
  } else if (regions.size() <= layout::kDataRegion) {
    CountReadError(ReadStatus::kUnreachable);
  } else {
    geometry = layout::ParseGeometry(std::span(page, layout::kHeaderBytes),
                                     regions[layout::kIndexRegion].size,
                                     regions[layout::kDataRegion].size);
    if (!geometry.has_value()) {
      kLog.Warn("replica ", replica_.name, " has no cache memory of version ", layout::kVersion);
      ++context_.counters.connect_not_a_cache;
    } else if (replica_.incarnation != ProcessIncarnation::kNone &&
               Raw(geometry->generation) != Raw(replica_.incarnation)) {
      kLog.Debug("replica ", replica_.name, " is not the one that the ring means");
      ++context_.counters.connect_other_incarnation;
      geometry.reset();
    }
  }
  if (!geometry.has_value()) {
    // Anything but a good answer or none at all is the server's end, over any address.
    if (status == ReadStatus::kOk || status == ReadStatus::kTimeout) return OnMisled();
    return OnConnectFailed();
  }
  geometry_ = *geometry;
  prefetch_ = MakeKeyScanPrefetch(geometry_, kPrefetchBytesMax);
  if (!immediate_ && !scans_) places_ = ReadPlaces::Make(*endpoint_);
  Become(State::kReady);
  if (way_.passed_over.empty()) {
    better_after_ = context_.options.better_address_interval;
  } else {
    LookForBetter();
  }
  health_.OnSuccess();
  heart_.Reset();
  heart_.OnLook(context_.loop.Now(), layout::LoadWord(page + layout::kHeartbeatOffset));
  context_.configuration.Saw(
      ConfigurationId{layout::LoadWord(page + layout::kConfigurationOffset)});
  for (Task& task : std::exchange(waiting_, {})) task();
}

void ReplicaLink::LookForBetter() {
  better_.After(better_after_, connection_.Bind([this] {
    const std::vector<std::string> better =
        fabric::BetterAddresses(replica_.fabric_addresses, "", way_.address);
    if (better.empty()) return LookForBetter();
    fabric::ConnectBest(&fabric_, better, "", context_.options.connect_timeout,
                        connection_.Bind([this](Result<fabric::BestEndpoint> best) {
                          if (!best.ok()) return LookForBetter();
                          kLog.Info("replica ", replica_.name, ": from ", way_.address, " up to ",
                                    best->way.address);
                          ++context_.counters.connect_moved_up;
                          EndConnection(State::kIdle);
                          Become(State::kConnecting);
                          OnConnected(std::move(best));
                        }));
  }));
}

void ReplicaLink::OnMisled() {
  misleading_ = way_.address;
  better_after_ = std::min(better_after_ * 2, kBetterAfterMax);
  OnConnectFailed();
}

void ReplicaLink::OnConnectFailed() {
  health_.OnFailure(context_.loop.Now(), context_.loop.Now());
  Lose();
}

void ReplicaLink::CountReadError(ReadStatus status) {
  ClientCounters& counters = context_.counters;
  switch (status) {
    case ReadStatus::kOk:
      return;
    case ReadStatus::kOutOfRange:
      ++counters.read_out_of_range;
      return;
    case ReadStatus::kStaleRegion:
      ++counters.read_stale_region;
      return;
    case ReadStatus::kUnreachable:
      ++counters.read_unreachable;
      return;
    case ReadStatus::kTimeout:
      ++counters.read_timeout;
      return;
    case ReadStatus::kOverloaded:
      ++counters.read_overloaded;
      return;
  }
}

void ReplicaLink::OnReadError(ReadStatus status, MonotonicTime asked) {
  CountReadError(status);
  // It was not sent.
  if (status == ReadStatus::kOverloaded) return health_.OnNothing(asked);
  health_.OnFailure(context_.loop.Now(), asked);
  if (status == ReadStatus::kStaleRegion || status == ReadStatus::kOutOfRange ||
      (endpoint_ != nullptr && !endpoint_->connected())) {
    Lose();
  }
}

void ReplicaLink::Lose() {
  if (state_ == State::kRetired) return;
  // Nobody's read has to wait for a connection that could have been made before.
  retry_.At(std::max(health_.retry_at(), context_.loop.Now()), scope_.Bind([this] { Connect(); }));
  EndConnection(State::kIdle);
}

void ReplicaLink::Retire() {
  if (state_ == State::kRetired) return;
  retry_.Cancel();
  EndConnection(State::kRetired);
}

void ReplicaLink::EndConnection(State next) {
  Become(next);
  connection_.Restart();
  better_.Cancel();
  heartbeat_.Cancel();
  batch_.clear();
  scan_batch_.clear();
  EndWatches();
  for (const FabricRead::Ptr& read : reads_) {
    if (read != nullptr) Release(*read);
  }
  places_.reset();
  auto remains = std::make_unique<Remains>();
  remains->endpoint = std::move(endpoint_);
  for (FabricRead::Ptr& read : reads_) {
    if (read != nullptr) remains->reads.push_back(std::move(read));
  }
  reads_.clear();
  free_reads_.clear();
  // Whoever waits or reads learns it now, and may ask other replicas in here.
  Remains& lost = *remains;
  for (Task& task : std::exchange(waiting_, {})) task();
  for (const FabricRead::Ptr& read : lost.reads) read->OnLost();
  if (lost.endpoint != nullptr) tailcast::Retire(context_.loop, std::move(remains));
}

// ---- Reads ----

ReadStatus ReplicaLink::ReadNow(std::span<const ReadDescriptor> descriptors) {
  fabric::Completion completions[4];
  TAILCAST_CHECK(descriptors.size() <= 4, "more reads than completions are polled for");
  endpoint_->Read(descriptors);
  const size_t count = endpoint_->Poll(std::span(completions, descriptors.size()));
  TAILCAST_CHECK(count == descriptors.size(), "an immediate endpoint left reads uncompleted");
  ReadStatus worst = ReadStatus::kOk;
  for (size_t i = 0; i < count; ++i) worst = std::max(worst, completions[i].status);
  if (worst == ReadStatus::kOk) OnBytes();
  return worst;
}

uint64_t ReplicaLink::Keep(FabricRead::Ptr read, size_t parts) {
  TAILCAST_CHECK(endpoint_ != nullptr, "a read on a link without a connection");
  if (free_reads_.empty()) {
    free_reads_.push_back(static_cast<uint32_t>(reads_.size()));
    reads_.emplace_back();
  }
  const uint32_t index = free_reads_.back();
  free_reads_.pop_back();
  read->token_ = next_read_++ << kTokenIndexBits | index;
  read->parts_ = static_cast<uint32_t>(parts);
  read->worst_ = ReadStatus::kOk;
  read->timed_out_ = false;
  if (batch_.empty() && scan_batch_.empty()) batch_began_ = context_.loop.Now();
  read->submitted_at_ = batch_began_;
  reads_[index] = std::move(read);
  return reads_[index]->token_;
}

void ReplicaLink::Submit(FabricRead::Ptr read, std::span<ReadDescriptor> descriptors) {
  const uint64_t token = Keep(std::move(read), descriptors.size());
  for (ReadDescriptor& descriptor : descriptors) {
    descriptor.token = token;
    context_.counters.bytes_read += descriptor.length;
  }
  const bool first = batch_.empty() && scan_batch_.empty();
  batch_.insert(batch_.end(), descriptors.begin(), descriptors.end());
  if (first) context_.outbox.Add(this);
}

void ReplicaLink::SubmitScan(FabricRead::Ptr read, fabric::ScanRead& scan) {
  read->scan_ = &scan;
  scan.token = Keep(std::move(read), 1);
  const bool first = batch_.empty() && scan_batch_.empty();
  scan_batch_.push_back(&scan);
  if (first) context_.outbox.Add(this);
}

void ReplicaLink::Release(FabricRead& read) {
  if (read.scan_ != nullptr && endpoint_ != nullptr) endpoint_->Release(*read.scan_);
}

void ReplicaLink::SendBatch() {
  if (!batch_.empty()) endpoint_->Read(batch_);
  batch_.clear();
  if (!scan_batch_.empty()) endpoint_->Scan(scan_batch_);
  scan_batch_.clear();
}

void ReplicaLink::OnCompletions() {
  const Scope::Watcher connection = connection_.Watch();
  fabric::Completion completions[64];
  while (!connection.ended()) {
    const size_t count = endpoint_->Poll(completions);
    for (size_t i = 0; i < count && !connection.ended(); ++i) {
      const uint64_t index = completions[i].token & ((1u << kTokenIndexBits) - 1);
      if (index >= reads_.size() || reads_[index] == nullptr ||
          reads_[index]->token_ != completions[i].token) {
        continue;  // nobody's
      }
      FabricRead& read = *reads_[index];
      read.worst_ = std::max(read.worst_, completions[i].status);
      read.timed_out_ |= completions[i].status == ReadStatus::kTimeout;
      if (--read.parts_ > 0) continue;
      read.scan_ = nullptr;
      FabricRead::Ptr own = std::move(reads_[index]);
      free_reads_.push_back(static_cast<uint32_t>(index));
      if (read.worst_ == ReadStatus::kOk) {
        OnBytes();
        const Duration latency = context_.loop.Now() - read.submitted_at_;
        speed_.OnLatency(latency);
        context_.hedges.OnLatency(latency);
      }
      read.OnCompleted(std::move(own), read.worst_);
    }
    if (count < std::size(completions)) return;
  }
}

// ---- Doorbells and the heartbeat of servers that are watched ----

uint64_t ReplicaLink::Watch(uint64_t offset, uint32_t last_seen, Duration timeout,
                            Callback<void(fabric::WatchOutcome)> done) {
  const uint64_t id = next_watch_++;
  const uint64_t endpoint_watch = endpoint_->Watch(
      layout::kIndexRegion, offset, last_seen, timeout,
      connection_.Bind([this, id](fabric::WatchOutcome outcome) { OnDoorbell(id, outcome); }));
  watches_.emplace(id, LinkWatch{endpoint_watch, context_.loop.Now(), std::move(done)});
  if (!heartbeat_.armed()) BeatAfterInterval();
  return id;
}

void ReplicaLink::CancelWatch(uint64_t id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  if (endpoint_ != nullptr) endpoint_->CancelWatch(found->second.endpoint_watch);
  watches_.erase(found);
}

void ReplicaLink::OnDoorbell(uint64_t id, fabric::WatchOutcome outcome) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Callback<void(fabric::WatchOutcome)> done = std::move(found->second.done);
  const MonotonicTime began = found->second.began;
  watches_.erase(found);
  if (outcome == fabric::WatchOutcome::kUnreachable) OnReadError(ReadStatus::kUnreachable, began);
  done(outcome);
}

// On turns of their own: this may be in the middle of anything.
void ReplicaLink::EndWatches() {
  for (auto& [id, watch] : std::exchange(watches_, {})) {
    if (endpoint_ != nullptr) endpoint_->CancelWatch(watch.endpoint_watch);
    context_.loop.Post(std::move(watch.done).With(fabric::WatchOutcome::kUnreachable));
  }
}

void ReplicaLink::BeatAfterInterval() {
  heartbeat_.After(context_.options.heartbeat_interval, scope_.Bind([this] {
    if (watches_.empty()) return;
    BeatAfterInterval();
    look_began_ = context_.loop.Now();
    ReadPage(&ReplicaLink::OnHeartbeat);
  }));
}

void ReplicaLink::OnHeartbeat(ReadStatus status, const char* page) {
  if (status != ReadStatus::kOk) {
    OnReadError(status, look_began_);
    EndWatches();
    return;
  }
  const MonotonicTime now = context_.loop.Now();
  heart_.OnLook(now, layout::LoadWord(page + layout::kHeartbeatOffset));
  if (heart_.Alive(now)) return;
  kLog.Warn("replica ", replica_.name, " stopped beating; its watches move");
  ++context_.counters.heartbeat_stopped;
  health_.OnFailure(now, now);
  EndWatches();
}

}  // namespace tailcast::cache
