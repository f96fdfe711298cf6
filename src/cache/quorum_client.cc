#include "tailcast/cache/quorum_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/hash.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/cache/merge.h"
#include "tailcast/cache/wire.h"

namespace tailcast::cache {

using fabric::ReadDescriptor;
using fabric::ReadStatus;
using layout::kBucketBytes;
using layout::kEntryHeaderBytes;
using layout::Location;

namespace {

const Logger kLog("cache");

// Bytes beyond `want` that a speculative read of a growing chunk takes along, so that one that grew
// meanwhile still costs one round trip.
constexpr uint32_t kSpeculationBytes = 1024;

}  // namespace

// ---- State ----

struct QuorumClient::Connection {
  enum class State : uint8_t { kIdle, kConnecting, kReady, kRetired };

  Replica replica;
  std::unique_ptr<rpc::Client> rpc;
  State state = State::kIdle;
  bool immediate = false;
  uint64_t attempt = 0;  // grows with each Connect and Lose: late callbacks are recognised by it
  uint64_t epoch = 0;    // of the connection that is ready; never repeated within the client
  size_t next_address = 0;
  std::unique_ptr<fabric::Endpoint> endpoint;
  std::vector<ReadDescriptor> batch;  // reads that were not given to the endpoint yet
  layout::Geometry geometry;
  ReplicaHealth health;
  std::vector<Task> waiting;  // for the end of kConnecting
  uint64_t inflight_bytes = 0;
  uint32_t watches = 0;
  bool heartbeat_running = false;
  HeartbeatCore heart{Duration::Seconds(1)};
};

struct QuorumClient::Item {
  Key key;
  MergeRule rule = MergeRule::kLongerWins;
  ChunkRead* chunk = nullptr;  // null: a value
  std::optional<std::string> value;
  ReadCore core;
  std::array<ConnectionPtr, kReplicasPerKey> replicas;
  bool finished = false;
};

struct QuorumClient::Batch {
  std::vector<Item> items;
  size_t unfinished = 0;
  ReadMode mode = ReadMode::kRelaxed;
  TimerId hedge = 0, deadline = 0;
  bool ended = false;
  Callback<void()> chunks_done;
  Callback<void(Result<std::vector<std::optional<std::string>>>)> values_done;
};

// A fabric read under way, with the memory that it lands in.
struct QuorumClient::Operation {
  enum class Stage : uint8_t { kGeometry, kHeartbeat, kBucket, kEntry };

  uint32_t index = 0;
  uint64_t token = 0;
  ConnectionPtr connection;
  Stage stage = Stage::kBucket;
  uint32_t pending = 0;
  ReadStatus worst = ReadStatus::kOk;
  int torn = 0;
  // Of kBucket and kEntry:
  BatchPtr batch;
  size_t item = 0;
  uint8_t replica = 0;
  Key key;
  Found found;
  bool entry_read = false;  // header and payload of `location` were read
  Location location;
  uint32_t from = 0;      // first payload byte wanted
  uint32_t from_crc = 0;  // crc32c of the bytes before it
  uint32_t payload = 0;   // payload bytes read, from `from` on
  // [0, 128) bucket or header page, [128, 192) entry header, [192, ...) payload.
  std::vector<char> buffer;

  char* bucket() { return buffer.data(); }
  char* header() { return buffer.data() + kBucketBytes; }
  char* bytes() { return buffer.data() + kBucketBytes + kEntryHeaderBytes; }
};

struct QuorumClient::Bulk {
  struct Request {
    ConnectionPtr connection;
    std::vector<uint32_t> keys;
    v1::CacheMutateRequest message;
    uint64_t bytes = 0;
    uint64_t call = 0;  // of drains_
  };
  MutationCore core;
  std::vector<Request> requests;
  uint32_t keys = 0;
  bool answered = false;
  Callback<void(Status)> done;
};

struct QuorumClient::Watch {
  uint64_t id = 0;
  Key key;
  MonotonicTime deadline;
  Callback<void(bool)> notify;
  ConnectionPtr connection;  // where it waits; null: nowhere
  uint64_t attempt = 0;
  uint64_t endpoint_watch = 0;
  uint8_t tried = 0;  // owners that could not watch
};

// ---- Life ----

QuorumClient::QuorumClient(EventLoop* loop, fabric::Connector* fabric, rpc::Connector* rpc,
                           QuorumClientOptions options, RingConfig config)
    : loop_(loop),
      fabric_(fabric),
      rpc_(rpc),
      options_(std::move(options)),
      alive_(std::make_shared<QuorumClient*>(this)) {
  TAILCAST_CHECK((options_.remembered_locations & (options_.remembered_locations - 1)) == 0,
                 "remembered_locations must be a power of two");
  preference_ = internal::HashFinish(options_.seed != 0 ? options_.seed : RandomSeed());
  locations_.resize(std::max<uint32_t>(options_.remembered_locations, 1));
  scratch_.resize(kEntryHeaderBytes + layout::kValueBytesMax);
  UpdateRing(std::move(config));
}

QuorumClient::~QuorumClient() {
  *alive_ = nullptr;
  // Endpoints first: they may still write into the operations' buffers.
  for (const ConnectionPtr& connection : connections_) {
    connection->endpoint.reset();
    connection->waiting.clear();
  }
  for (std::unique_ptr<Operation>& operation : operations_) {
    if (operation == nullptr || operation->batch == nullptr) continue;
    loop_->Cancel(std::exchange(operation->batch->hedge, 0));
    loop_->Cancel(std::exchange(operation->batch->deadline, 0));
  }
}

void QuorumClient::UpdateRing(RingConfig config) {
  if (!config_.replicas.empty() && config.configuration_id < config_.configuration_id) return;
  std::vector<ConnectionPtr> old = std::move(connections_);
  connections_.clear();
  for (const Replica& replica : config.replicas) {
    const auto same = std::find_if(old.begin(), old.end(), [&](const ConnectionPtr& c) {
      return c != nullptr && c->replica.name == replica.name &&
             c->replica.incarnation == replica.incarnation &&
             c->replica.rpc_address == replica.rpc_address &&
             c->replica.fabric_addresses == replica.fabric_addresses;
    });
    if (same != old.end()) {
      connections_.push_back(std::move(*same));
      continue;
    }
    auto connection = std::make_shared<Connection>();
    connection->replica = replica;
    connection->heart = HeartbeatCore(options_.heartbeat_dead);
    if (!replica.rpc_address.empty()) connection->rpc = rpc_->MakeClient(replica.rpc_address, "");
    connections_.push_back(std::move(connection));
  }
  ring_ = HashRing(config);
  config_ = std::move(config);
  stale_reported_ = std::max(stale_reported_, config_.configuration_id);
  for (const ConnectionPtr& connection : old) {
    if (connection == nullptr) continue;
    Lose(*connection);
    connection->state = Connection::State::kRetired;
  }
  for (const ConnectionPtr& connection : connections_) {
    if (connection->state == Connection::State::kIdle) Connect(connection);
  }
}

uint32_t QuorumClient::ready_replicas() const {
  return static_cast<uint32_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const ConnectionPtr& c) { return c->state == Connection::State::kReady; }));
}

// ---- Replicas ----

Owners QuorumClient::PreferredOwners(const Key& key) {
  Owners owners = ring_.OwnersOf(key);
  // One replica of each key is this client's first choice, so that what it remembers of places is
  // of use; over clients and keys the choice is uniform.
  // Over shared memory nobody's network is spared by that, and all clients of a host do better with
  // the copy that is in the processor's caches already.
  if (owners.count > 1 && !ConnectionOf(owners, 0).immediate) {
    const uint64_t mixed = (key.lo ^ preference_) * 0x9e3779b97f4a7c15;
    const auto first = static_cast<uint32_t>(((mixed >> 32) * owners.count) >> 32);
    if (first != 0) {
      std::rotate(owners.replica.begin(), owners.replica.begin() + first,
                  owners.replica.begin() + owners.count);
    }
  }
  return owners;
}

void QuorumClient::Connect(const ConnectionPtr& connection) {
  Connection& c = *connection;
  if (c.replica.fabric_addresses.empty()) return;
  c.state = Connection::State::kConnecting;
  const uint64_t attempt = ++c.attempt;
  const std::string& address =
      c.replica.fabric_addresses[c.next_address % c.replica.fabric_addresses.size()];
  fabric_->Connect(
      address, options_.connect_timeout,
      [alive = alive_, connection, attempt](Result<std::unique_ptr<fabric::Endpoint>> endpoint) {
        if (*alive != nullptr) {
          (*alive)->OnConnected(connection, attempt, std::move(endpoint));
        }
      });
}

void QuorumClient::OnConnected(const ConnectionPtr& connection, uint64_t attempt,
                               Result<std::unique_ptr<fabric::Endpoint>> endpoint) {
  Connection& c = *connection;
  if (c.attempt != attempt || c.state != Connection::State::kConnecting) return;
  if (!endpoint.ok()) {
    kLog.Debug("replica ", c.replica.name, ": ", endpoint.status());
    OnConnectFailed(c);
    return;
  }
  c.endpoint = std::move(endpoint).value();
  c.immediate = c.endpoint->capabilities().immediate;
  c.endpoint->set_read_timeout(kReadDeadlineMax);
  if (c.endpoint->regions().size() <= layout::kDataRegion) {
    kLog.Warn("replica ", c.replica.name, " exports ", c.endpoint->regions().size(),
              " regions; a cache server has two");
    OnConnectFailed(c);
    return;
  }
  if (c.immediate) {
    char page[layout::kHeaderBytes];
    const ReadDescriptor descriptor{layout::kIndexRegion, sizeof(page), 0, page, 0};
    OnGeometry(c, ReadNow(c, std::span(&descriptor, 1)), page);
    return;
  }
  c.endpoint->SetReadyCallback(
      [alive = alive_, weak = std::weak_ptr<Connection>(connection), attempt] {
        const ConnectionPtr strong = weak.lock();
        if (*alive != nullptr && strong != nullptr) (*alive)->OnReady(strong, attempt);
      });
  Operation* operation = NewOperation(connection);
  operation->stage = Operation::Stage::kGeometry;
  ReadDescriptor descriptor{layout::kIndexRegion, layout::kHeaderBytes, 0, operation->bucket(), 0};
  Submit(operation, std::span(&descriptor, 1));
}

void QuorumClient::OnGeometry(Connection& c, ReadStatus status, const char* page) {
  std::optional<layout::Geometry> geometry;
  if (status == ReadStatus::kOk) {
    geometry = layout::ParseGeometry(std::span(page, layout::kHeaderBytes),
                                     c.endpoint->regions()[layout::kIndexRegion].size,
                                     c.endpoint->regions()[layout::kDataRegion].size);
    if (!geometry.has_value()) {
      kLog.Warn("replica ", c.replica.name, " has no cache memory of version ", layout::kVersion);
    }
  }
  if (!geometry.has_value()) {
    OnConnectFailed(c);
    return;
  }
  c.geometry = *geometry;
  c.state = Connection::State::kReady;
  c.epoch = next_epoch_++;
  c.health.OnSuccess();
  c.heart.Reset();
  SawConfigurationId(layout::LoadWord(page + layout::kConfigurationOffset));
  const BatchScope scope(this);
  for (Task& task : std::exchange(c.waiting, {})) task();
}

void QuorumClient::OnConnectFailed(Connection& c) {
  ++counters_.replica_errors;
  ++c.next_address;
  c.health.OnFailure(loop_->Now());
  Lose(c);
}

void QuorumClient::Lose(Connection& c) {
  if (c.state == Connection::State::kRetired) return;
  c.state = Connection::State::kIdle;
  ++c.attempt;
  c.epoch = 0;
  c.batch.clear();
  // The endpoint may be in the middle of a callback, and may write into the operations' buffers as
  // long as it lives: both go together, on a turn of their own.
  struct Remains {
    std::vector<std::unique_ptr<Operation>> operations;
    std::unique_ptr<fabric::Endpoint> endpoint;  // destroyed first
  };
  auto remains = std::make_shared<Remains>();
  remains->endpoint = std::move(c.endpoint);
  for (uint32_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i] == nullptr || operations_[i]->connection.get() != &c) continue;
    remains->operations.push_back(std::move(operations_[i]));
    free_operations_.push_back(i);
    --operations_in_use_;
  }
  if (remains->endpoint != nullptr) loop_->Post([remains] {});
  KeepTrying(c);
  MoveWatches(c);
  for (Task& task : std::exchange(c.waiting, {})) task();
  for (const std::unique_ptr<Operation>& operation : remains->operations) {
    if (operation->batch != nullptr) {
      const BatchPtr batch = std::move(operation->batch);
      OnFound(batch, operation->item, operation->replica, Found{}, "");
    }
  }
}

void QuorumClient::KeepTrying(Connection& c) {
  // Nobody's read has to wait for a connection that could have been made before.
  const auto place = std::find_if(connections_.begin(), connections_.end(),
                                  [&](const ConnectionPtr& other) { return other.get() == &c; });
  if (place == connections_.end()) return;  // of an older configuration
  loop_->At(std::max(c.health.retry_at(), loop_->Now()),
            [alive = alive_, weak = std::weak_ptr<Connection>(*place), attempt = c.attempt] {
              const ConnectionPtr strong = weak.lock();
              if (*alive == nullptr || strong == nullptr || strong->attempt != attempt ||
                  strong->state != Connection::State::kIdle) {
                return;
              }
              (*alive)->Connect(strong);
            });
}

void QuorumClient::OnReadError(Connection& c, ReadStatus status) {
  ++counters_.replica_errors;
  if (status == ReadStatus::kOverloaded) return;
  c.health.OnFailure(loop_->Now());
  if (status == ReadStatus::kStaleRegion || status == ReadStatus::kOutOfRange ||
      (c.endpoint != nullptr && !c.endpoint->connected())) {
    Lose(c);
  }
}

bool QuorumClient::ReadyNow(const Connection& c) const {
  return c.state == Connection::State::kReady &&
         (c.health.failures() == 0 || c.health.Usable(loop_->Now()));
}

bool QuorumClient::Usable(const Connection& c) const {
  switch (c.state) {
    case Connection::State::kReady:
      return ReadyNow(c);
    case Connection::State::kConnecting:
      // One that failed before makes nobody wait.
      return c.health.failures() == 0;
    case Connection::State::kIdle:
    case Connection::State::kRetired:
      return false;
  }
  return false;
}

void QuorumClient::SawConfiguration(uint32_t low_bits) {
  const auto mine = static_cast<uint32_t>(config_.configuration_id);
  const auto ahead = static_cast<int32_t>(low_bits - mine);
  if (ahead > 0) SawConfigurationId(config_.configuration_id + static_cast<uint32_t>(ahead));
}

void QuorumClient::SawConfigurationId(uint64_t id) {
  if (id <= config_.configuration_id || id <= stale_reported_) return;
  stale_reported_ = id;
  loop_->Post([alive = alive_, id] {
    if (*alive != nullptr && (*alive)->stale_) (*alive)->stale_(id);
  });
}

// ---- Reads inside the call ----

ReadStatus QuorumClient::ReadNow(Connection& c, std::span<const ReadDescriptor> descriptors) {
  fabric::Completion completions[4];
  TAILCAST_CHECK(descriptors.size() <= 4, "more reads than completions are polled for");
  c.endpoint->Read(descriptors);
  const size_t count = c.endpoint->Poll(std::span(completions, descriptors.size()));
  TAILCAST_CHECK(count == descriptors.size(), "an immediate endpoint left reads uncompleted");
  ReadStatus worst = ReadStatus::kOk;
  for (size_t i = 0; i < count; ++i) worst = std::max(worst, completions[i].status);
  return worst;
}

QuorumClient::RememberedLocation& QuorumClient::LocationSlot(const Connection& c, const Key& key) {
  const uint64_t mixed = (key.lo + c.epoch * 0x9e3779b97f4a7c15) ^ (key.hi >> 32);
  return locations_[mixed & (locations_.size() - 1)];
}

bool QuorumClient::ParseEntry(const Connection& c, const char* bytes, const Key& key,
                              uint64_t offset, bool remembered, layout::EntryHeader& header) const {
  if (!layout::ParseEntryHeader(bytes, key, c.geometry.generation, header)) {
    // The planted bug: a place that held the key once is believed to hold it still.
    if (!(remembered && options_.planted.trust_location && header.length != 0)) return false;
  }
  return layout::LocationFits({offset, header.length}, c.geometry.data_bytes);
}

QuorumClient::Outcome QuorumClient::ReadBucketNow(Connection& c, const Key& key, char* bucket,
                                                  Found& found) {
  const uint64_t offset = layout::BucketOffset(layout::BucketOf(key, c.geometry.bucket_count));
  const ReadDescriptor descriptor{layout::kIndexRegion, kBucketBytes, offset, bucket, 0};
  const ReadStatus status = ReadNow(c, std::span(&descriptor, 1));
  if (status != ReadStatus::kOk) {
    OnReadError(c, status);
    return Outcome::kError;
  }
  counters_.bytes_read += kBucketBytes;
  layout::BucketHeader header;
  if (!layout::ParseBucket(bucket, header)) return Outcome::kTorn;
  SawConfiguration(header.configuration);
  found.saw_bucket = true;
  found.doorbell = header.doorbell;
  return (header.flags & layout::kFlagOverflow) != 0 ? Outcome::kOverflowed : Outcome::kAbsent;
}

QuorumClient::Outcome QuorumClient::ReadChunkAt(Connection& c, ChunkRead& read, uint64_t offset,
                                                uint32_t expected, uint32_t& length,
                                                bool remembered) {
  const uint32_t have = std::max(read.have, read.length);
  char bytes[kEntryHeaderBytes];
  expected = std::min(expected, read.capacity);
  if (!layout::LocationFits({offset, std::max(expected, have)}, c.geometry.data_bytes)) {
    return Outcome::kTorn;
  }
  ReadDescriptor descriptors[2] = {
      {layout::kDataRegion, kEntryHeaderBytes, offset, bytes, 0},
      {layout::kDataRegion, 0, offset + kEntryHeaderBytes + have, read.destination + have, 0}};
  size_t count = 1;
  uint32_t end = have;  // of the payload that was read
  if (expected > have) {
    end = expected;
    descriptors[1].length = end - have;
    count = 2;
  }
  ReadStatus status = ReadNow(c, std::span(descriptors, count));
  if (status != ReadStatus::kOk) {
    OnReadError(c, status);
    return Outcome::kError;
  }
  counters_.bytes_read += kEntryHeaderBytes + end - have;
  layout::EntryHeader header;
  if (!ParseEntry(c, bytes, read.key, offset, remembered, header)) return Outcome::kTorn;
  length = header.length;
  if (header.length <= have) return Outcome::kFound;
  if (header.length > read.capacity) return CutChunk(c, read, offset, header);
  if (header.length > end) {
    descriptors[1].offset = offset + kEntryHeaderBytes + end;
    descriptors[1].destination = read.destination + end;
    descriptors[1].length = header.length - end;
    status = ReadNow(c, std::span(descriptors + 1, 1));
    if (status != ReadStatus::kOk) {
      OnReadError(c, status);
      return Outcome::kError;
    }
    counters_.bytes_read += header.length - end;
  }
  const uint32_t crc = Crc32cExtend(read.crc, read.destination + have, header.length - have);
  if (!PayloadFits(crc, header)) return Outcome::kTorn;
  read.length = header.length;
  read.crc = crc;
  counters_.useful_bytes += header.length - have;
  return Outcome::kFound;
}

// A value that is longer than the reader has room for: it can only be validated whole.
QuorumClient::Outcome QuorumClient::CutChunk(Connection& c, ChunkRead& read, uint64_t offset,
                                             const layout::EntryHeader& header) {
  const uint32_t have = std::max(read.have, read.length);
  const ReadDescriptor descriptor{layout::kDataRegion, header.length, offset + kEntryHeaderBytes,
                                  scratch_.data(), 0};
  const ReadStatus status = ReadNow(c, std::span(&descriptor, 1));
  if (status != ReadStatus::kOk) {
    OnReadError(c, status);
    return Outcome::kError;
  }
  counters_.bytes_read += header.length;
  if (!PayloadFits(Crc32cExtend(0, scratch_.data(), header.length), header)) return Outcome::kTorn;
  if (read.capacity > have) {
    // The prefix that the reader has must be this value's too.
    if (Crc32cExtend(0, scratch_.data(), have) != read.crc) return Outcome::kTorn;
    std::memcpy(read.destination + have, scratch_.data() + have, read.capacity - have);
    read.crc = Crc32cExtend(read.crc, scratch_.data() + have, read.capacity - have);
    read.length = read.capacity;
    counters_.useful_bytes += read.capacity - have;
  }
  return Outcome::kFound;
}

QuorumClient::Found QuorumClient::ReadChunkNow(Connection& c, ChunkRead& read) {
  Found found;
  const uint64_t epoch = c.epoch;
  RememberedLocation& place = LocationSlot(c, read.key);
  if (place.epoch == epoch && place.key == read.key) {
    const Outcome outcome =
        ReadChunkAt(c, read, place.offset, read.want, found.length, /*remembered=*/true);
    // A shorter value may have moved on since: look it up. What was found stays found.
    if (outcome == Outcome::kError || (outcome == Outcome::kFound && found.length >= read.want)) {
      found.outcome = outcome;
      return found;
    }
    place.epoch = 0;
  }
  char bucket[kBucketBytes];
  for (int attempt = 0; attempt <= options_.torn_retries_max; ++attempt) {
    if (attempt > 0) ++counters_.torn_retries;
    const Outcome in_bucket = ReadBucketNow(c, read.key, bucket, found);
    if (in_bucket == Outcome::kError) return found;
    if (in_bucket == Outcome::kTorn) continue;
    found.outcome = in_bucket;
    uint32_t way = 0;
    while (const auto location = layout::FindInBucket(bucket, read.key, way)) {
      found.outcome = ReadChunkAt(c, read, location->offset, location->length, found.length,
                                  /*remembered=*/false);
      if (found.outcome == Outcome::kError) return found;
      if (found.outcome == Outcome::kFound) {
        place = {read.key, epoch, location->offset, found.length};
        return found;
      }
    }
    if (found.outcome != Outcome::kTorn) return found;
  }
  found.outcome = Outcome::kError;
  ++counters_.replica_errors;
  return found;
}

QuorumClient::Found QuorumClient::ReadValueNow(Connection& c, const Key& key,
                                               std::string_view& value) {
  Found found;
  char bucket[kBucketBytes];
  for (int attempt = 0; attempt <= options_.torn_retries_max; ++attempt) {
    if (attempt > 0) ++counters_.torn_retries;
    const Outcome in_bucket = ReadBucketNow(c, key, bucket, found);
    if (in_bucket == Outcome::kError) return found;
    if (in_bucket == Outcome::kTorn) continue;
    found.outcome = in_bucket;
    uint32_t way = 0;
    while (const auto location = layout::FindInBucket(bucket, key, way)) {
      found.outcome = Outcome::kTorn;
      if (!layout::LocationFits(*location, c.geometry.data_bytes)) continue;
      const ReadDescriptor descriptor{layout::kDataRegion, kEntryHeaderBytes + location->length,
                                      location->offset, scratch_.data(), 0};
      const ReadStatus status = ReadNow(c, std::span(&descriptor, 1));
      if (status != ReadStatus::kOk) {
        OnReadError(c, status);
        found.outcome = Outcome::kError;
        return found;
      }
      counters_.bytes_read += descriptor.length;
      layout::EntryHeader header;
      if (!ParseEntry(c, scratch_.data(), key, location->offset, false, header) ||
          header.length > location->length) {
        continue;  // changed since the bucket was read: read it again
      }
      value = {scratch_.data() + kEntryHeaderBytes, header.length};
      if (!PayloadFits(Crc32c(value), header)) continue;
      found.outcome = Outcome::kFound;
      found.length = header.length;
      return found;
    }
    if (found.outcome != Outcome::kTorn) return found;
  }
  found.outcome = Outcome::kError;
  ++counters_.replica_errors;
  return found;
}

bool QuorumClient::TryReadChunks(std::span<ChunkRead> reads) {
  bool all = true;
  // Each bucket is in a place of its own that this process has not touched lately: waiting for them
  // one after the other would take as long as copying the chunks.
  constexpr size_t kAhead = 8;
  Owners ahead[kAhead];
  size_t found = 0;
  for (size_t at = 0; at < reads.size(); ++at) {
    for (; found < std::min(at + kAhead, reads.size()); ++found) {
      const Owners& owners = ahead[found % kAhead] = PreferredOwners(reads[found].key);
      const Connection& c = ConnectionOf(owners, 0);
      if (!c.immediate || c.state != Connection::State::kReady) continue;
      c.endpoint->Prefetch(
          layout::kIndexRegion,
          layout::BucketOffset(layout::BucketOf(reads[found].key, c.geometry.bucket_count)),
          kBucketBytes);
    }
    ChunkRead& read = reads[at];
    if (read.length >= read.want) continue;
    const Owners& owners = ahead[at % kAhead];
    bool hit = false;
    for (uint8_t i = 0; i < owners.count; ++i) {
      Connection& c = ConnectionOf(owners, i);
      if (!c.immediate || !ReadyNow(c)) continue;
      const Found answer = ReadChunkNow(c, read);
      if (answer.outcome == Outcome::kFound && c.health.failures() != 0) c.health.OnSuccess();
      hit = answer.outcome == Outcome::kFound && read.length >= read.want;
      // A write is announced when two replicas have it: the third may lag, and asking another one
      // here costs less than a turn of the loop.
      if (hit) break;
    }
    if (hit) {
      ++counters_.reads;
      ++counters_.hits;
    } else {
      all = false;
    }
  }
  return all;
}

// ---- Batches ----

void QuorumClient::ReadChunks(std::span<ChunkRead> reads, ReadMode mode, Duration timeout,
                              Callback<void()> done) {
  auto batch = std::make_shared<Batch>();
  batch->mode = mode;
  batch->chunks_done = std::move(done);
  batch->items.reserve(reads.size());
  for (ChunkRead& read : reads) {
    if (read.length >= read.want) continue;
    Item& item = batch->items.emplace_back();
    item.key = read.key;
    item.chunk = &read;
    ++counters_.reads;
    if (mode == ReadMode::kConsistent) ++counters_.consistent_reads;
  }
  RunBatch(batch, timeout);
}

void QuorumClient::ReadValues(
    std::vector<ValueRead> reads, Duration timeout,
    Callback<void(Result<std::vector<std::optional<std::string>>>)> done) {
  auto batch = std::make_shared<Batch>();
  batch->mode = ReadMode::kConsistent;
  batch->values_done = std::move(done);
  batch->items.reserve(reads.size());
  counters_.value_reads += reads.size();
  for (const ValueRead& read : reads) {
    Item& item = batch->items.emplace_back();
    item.key = read.key;
    item.rule = read.rule;
  }
  RunBatch(batch, timeout);
}

void QuorumClient::RunBatch(const BatchPtr& batch, Duration timeout) {
  const BatchScope scope(this);
  batch->unfinished = batch->items.size();
  for (size_t i = 0; i < batch->items.size(); ++i) {
    Item& item = batch->items[i];
    const Owners owners = PreferredOwners(item.key);
    Mask usable = 0;
    for (uint8_t r = 0; r < owners.count; ++r) {
      item.replicas[r] = connections_[owners.replica[r]];
      if (Usable(*item.replicas[r])) usable |= static_cast<Mask>(1u << r);
    }
    const bool value = item.chunk == nullptr;
    const Mask ask =
        item.core.Start(value ? ReadCore::Kind::kValue : ReadCore::Kind::kChunk, batch->mode,
                        owners.count, usable, value ? 0 : item.chunk->want);
    Ask(batch, i, ask);
    if (item.core.done()) FinishItem(*batch, item);
  }
  if (batch->unfinished == 0) {
    FinishBatch(batch);
    return;
  }
  timeout = std::min(timeout, kReadDeadlineMax);
  batch->deadline = loop_->After(timeout, [alive = alive_, batch] {
    if (*alive == nullptr || batch->ended) return;
    batch->deadline = 0;
    for (Item& item : batch->items) {
      if (item.finished) continue;
      item.core.OnDeadline();
      (*alive)->FinishItem(*batch, item);
    }
    (*alive)->FinishBatch(batch);
  });
  if (options_.hedge_delay < timeout) {
    batch->hedge = loop_->After(options_.hedge_delay, [alive = alive_, batch] {
      if (*alive != nullptr) (*alive)->Hedge(batch);
    });
  }
}

void QuorumClient::Hedge(const BatchPtr& batch) {
  const BatchScope scope(this);
  batch->hedge = 0;
  bool more = false;
  for (size_t i = 0; i < batch->items.size() && !batch->ended; ++i) {
    Item& item = batch->items[i];
    if (item.finished) continue;
    const Mask ask = item.core.OnHedge();
    if (ask == 0) continue;
    more = true;
    ++counters_.hedges;
    Ask(batch, i, ask);
    if (item.core.done()) FinishItem(*batch, item);
  }
  if (batch->unfinished == 0) {
    FinishBatch(batch);
  } else if (more) {
    batch->hedge = loop_->After(options_.hedge_delay, [alive = alive_, batch] {
      if (*alive != nullptr) (*alive)->Hedge(batch);
    });
  }
}

void QuorumClient::Ask(const BatchPtr& batch, size_t index, Mask replicas) {
  for (uint8_t replica = 0; replicas != 0; ++replica, replicas >>= 1) {
    if ((replicas & 1) != 0) AskOne(batch, index, replica);
  }
}

void QuorumClient::AskOne(const BatchPtr& batch, size_t index, uint8_t replica) {
  Item& item = batch->items[index];
  if (item.finished) return;
  const ConnectionPtr& connection = item.replicas[replica];
  Connection& c = *connection;
  if (c.state == Connection::State::kConnecting) {
    c.waiting.push_back([alive = alive_, batch, index, replica] {
      if (*alive != nullptr && !batch->ended) (*alive)->AskOne(batch, index, replica);
    });
    return;
  }
  if (c.state != Connection::State::kReady) {
    OnFound(batch, index, replica, Found{}, "");
    return;
  }
  if (!c.immediate) {
    StartOperation(batch, index, replica);
    return;
  }
  std::string_view value;
  const Found found =
      item.chunk != nullptr ? ReadChunkNow(c, *item.chunk) : ReadValueNow(c, item.key, value);
  OnFound(batch, index, replica, found, value);
}

void QuorumClient::OnFound(const BatchPtr& batch, size_t index, uint8_t replica, const Found& found,
                           std::string_view value) {
  Item& item = batch->items[index];
  if (item.finished || batch->ended) return;
  Connection& c = *item.replicas[replica];
  if (item.chunk == nullptr && found.saw_bucket && c.epoch != 0) {
    RememberedValue& remembered = Remember(item.key);
    remembered.epochs[replica] = c.epoch;
    remembered.doorbells[replica] = found.doorbell;
  }
  Mask ask = 0;
  switch (found.outcome) {
    case Outcome::kFound:
    case Outcome::kAbsent:
      if (c.health.failures() != 0) c.health.OnSuccess();
      if (item.chunk == nullptr && found.outcome == Outcome::kFound) {
        if (!item.value.has_value()) {
          item.value.emplace(value);
        } else if (MergeInto(item.rule, *item.value, value) == MutationResult::kMismatch) {
          ++counters_.mismatches;
        }
      }
      ask = item.core.OnAnswer(replica, found.outcome == Outcome::kFound ? found.length : 0);
      break;
    case Outcome::kOverflowed:
      AskByRpc(batch, index, replica, found.doorbell);
      return;
    case Outcome::kTorn:
    case Outcome::kError:
      ask = item.core.OnError(replica);
      break;
  }
  Ask(batch, index, ask);
  if (item.core.done() && !item.finished) {
    FinishItem(*batch, item);
    // RunBatch and Hedge look at the end of their loops.
    if (batch->unfinished == 0 && batch->deadline != 0) FinishBatch(batch);
  }
}

void QuorumClient::AskByRpc(const BatchPtr& batch, size_t index, uint8_t replica,
                            uint32_t doorbell) {
  Item& item = batch->items[index];
  Connection& c = *item.replicas[replica];
  ++counters_.overflow_reads;
  if (c.rpc == nullptr) {
    OnFound(batch, index, replica, Found{}, "");
    return;
  }
  v1::CacheGetRequest request;
  wire::AppendKey(*request.mutable_keys(), item.key);
  c.rpc->Call("/" + options_.service + "/Get", request.SerializeAsString(), kReadDeadlineMax,
              [alive = alive_, batch, index, replica, doorbell](Result<std::string> reply) {
                if (*alive == nullptr || batch->ended) return;
                Item& item = batch->items[index];
                if (item.finished) return;
                Found found;
                found.saw_bucket = true;
                found.doorbell = doorbell;
                wire::Entry entry;
                v1::CacheBatch values;
                const bool fits = reply.ok() && values.ParseFromString(*reply) &&
                                  wire::Reader::Check(values).ok() &&
                                  wire::Reader(values).Next(entry) && entry.key == item.key;
                if (fits) {
                  found.outcome = entry.erase_or_absent ? Outcome::kAbsent : Outcome::kFound;
                  found.length = static_cast<uint32_t>(entry.value.size());
                  ChunkRead* read = item.chunk;
                  const uint32_t have = read == nullptr ? 0 : std::max(read->have, read->length);
                  if (read != nullptr && std::min(found.length, read->capacity) > have) {
                    const std::string_view added =
                        entry.value.substr(have, std::min(found.length, read->capacity) - have);
                    if (Crc32c(entry.value.substr(0, have)) != read->crc) {
                      found.outcome = Outcome::kError;  // not the value that the reader began with
                    } else {
                      std::memcpy(read->destination + have, added.data(), added.size());
                      read->crc = Crc32cExtend(read->crc, added.data(), added.size());
                      read->length = have + static_cast<uint32_t>(added.size());
                    }
                  }
                }
                (*alive)->OnFound(batch, index, replica, found, entry.value);
              });
}

void QuorumClient::FinishItem(Batch& batch, Item& item) {
  if (item.finished) return;
  item.finished = true;
  --batch.unfinished;
  if (item.chunk == nullptr) {
    if (!item.value.has_value()) return;
    RememberedValue& remembered = Remember(item.key);
    if (MergeInto(item.rule, *item.value, remembered.value) == MutationResult::kMismatch) {
      ++counters_.mismatches;
    }
    remembered.value = *item.value;
    return;
  }
  ChunkRead& read = *item.chunk;
  read.length = std::max(read.length, read.have);
  if (read.length >= read.want) {
    ++counters_.hits;
  } else if (read.length > read.have) {
    ++counters_.short_reads;
  } else {
    ++counters_.misses;
  }
}

void QuorumClient::FinishBatch(const BatchPtr& batch) {
  if (batch->ended) return;
  batch->ended = true;
  loop_->Cancel(std::exchange(batch->hedge, 0));
  loop_->Cancel(std::exchange(batch->deadline, 0));
  loop_->Post([alive = alive_, batch] {
    if (*alive == nullptr) return;
    if (batch->chunks_done) {
      std::exchange(batch->chunks_done, nullptr)();
      return;
    }
    std::vector<std::optional<std::string>> values;
    values.reserve(batch->items.size());
    size_t unanswered = 0;
    for (Item& item : batch->items) {
      unanswered += item.core.answers() == 0 ? 1 : 0;
      values.push_back(std::move(item.value));
    }
    auto done = std::exchange(batch->values_done, nullptr);
    if (unanswered > 0) {
      done(UnavailableError("no cache replica answered for " + std::to_string(unanswered) + " of " +
                            std::to_string(values.size()) + " values"));
    } else {
      done(std::move(values));
    }
  });
}

QuorumClient::RememberedValue& QuorumClient::Remember(const Key& key) {
  const auto found = values_by_key_.find(key);
  if (found != values_by_key_.end()) {
    values_.splice(values_.begin(), values_, found->second);
    return values_.front();
  }
  if (values_.size() >= options_.remembered_values_max) {
    values_by_key_.erase(values_.back().key);
    values_.pop_back();
  }
  values_.emplace_front();
  values_.front().key = key;
  values_by_key_.emplace(key, values_.begin());
  return values_.front();
}

// ---- Reads whose completions come later ----

QuorumClient::Operation* QuorumClient::NewOperation(const ConnectionPtr& connection) {
  auto operation = std::make_unique<Operation>();
  if (free_operations_.empty()) {
    free_operations_.push_back(static_cast<uint32_t>(operations_.size()));
    operations_.emplace_back();
  }
  operation->index = free_operations_.back();
  free_operations_.pop_back();
  operation->token = next_generation_++ << 24 | operation->index;
  operation->connection = connection;
  operation->buffer.resize(kBucketBytes + kEntryHeaderBytes);
  ++operations_in_use_;
  Operation* raw = operation.get();
  operations_[raw->index] = std::move(operation);
  return raw;
}

void QuorumClient::FreeOperation(Operation* operation) {
  const uint32_t index = operation->index;
  operations_[index].reset();
  free_operations_.push_back(index);
  --operations_in_use_;
  if (waiting_.empty() || operations_in_use_ >= options_.operations_max) return;
  Task task = std::move(waiting_.front());
  waiting_.pop_front();
  loop_->Post(std::move(task));
}

void QuorumClient::Submit(Operation* operation, std::span<ReadDescriptor> descriptors) {
  operation->pending = static_cast<uint32_t>(descriptors.size());
  operation->worst = ReadStatus::kOk;
  for (ReadDescriptor& descriptor : descriptors) {
    descriptor.token = operation->token;
    counters_.bytes_read += descriptor.length;
  }
  Connection& c = *operation->connection;
  if (c.batch.empty()) with_batch_.push_back(operation->connection);
  c.batch.insert(c.batch.end(), descriptors.begin(), descriptors.end());
  if (batch_scopes_ == 0) SendBatches();
}

void QuorumClient::SendBatches() {
  for (const ConnectionPtr& connection : with_batch_) {
    if (connection->endpoint != nullptr && !connection->batch.empty()) {
      connection->endpoint->Read(connection->batch);
    }
    connection->batch.clear();
  }
  with_batch_.clear();
}

void QuorumClient::StartOperation(const BatchPtr& batch, size_t index, uint8_t replica) {
  Item& item = batch->items[index];
  if (operations_in_use_ >= options_.operations_max) {
    waiting_.push_back([alive = alive_, batch, index, replica] {
      if (*alive == nullptr) return;
      if (batch->ended) {
        // Nobody waits for this one: the next may go.
        QuorumClient& self = **alive;
        if (self.waiting_.empty()) return;
        Task task = std::move(self.waiting_.front());
        self.waiting_.pop_front();
        self.loop_->Post(std::move(task));
        return;
      }
      (*alive)->AskOne(batch, index, replica);
    });
    return;
  }
  Operation* operation = NewOperation(item.replicas[replica]);
  operation->batch = batch;
  operation->item = index;
  operation->replica = replica;
  operation->key = item.key;
  if (item.chunk != nullptr) {
    operation->from = std::max(item.chunk->have, item.chunk->length);
    operation->from_crc = item.chunk->crc;
    operation->buffer.reserve(kBucketBytes + kEntryHeaderBytes + item.chunk->capacity);
  }
  ReadBucket(operation);
}

void QuorumClient::ReadBucket(Operation* operation) {
  Connection& c = *operation->connection;
  operation->stage = Operation::Stage::kBucket;
  operation->entry_read = false;
  const RememberedLocation& place = LocationSlot(c, operation->key);
  uint32_t end = 0;
  if (operation->torn == 0 && place.epoch == c.epoch && place.key == operation->key) {
    const ChunkRead* read = operation->batch->items[operation->item].chunk;
    end = read == nullptr ? place.length : std::min(read->capacity, read->want + kSpeculationBytes);
    operation->location = {place.offset, end};
    operation->entry_read = layout::LocationFits(operation->location, c.geometry.data_bytes);
  }
  operation->payload = operation->entry_read && end > operation->from ? end - operation->from : 0;
  const size_t needed = kBucketBytes + kEntryHeaderBytes + operation->payload;
  if (operation->buffer.size() < needed) operation->buffer.resize(needed);
  ReadDescriptor descriptors[3];
  size_t count = 0;
  descriptors[count++] = {
      layout::kIndexRegion, kBucketBytes,
      layout::BucketOffset(layout::BucketOf(operation->key, c.geometry.bucket_count)),
      operation->bucket(), 0};
  if (operation->entry_read) {
    descriptors[count++] = {layout::kDataRegion, kEntryHeaderBytes, operation->location.offset,
                            operation->header(), 0};
    if (operation->payload > 0) {
      descriptors[count++] = {layout::kDataRegion, operation->payload,
                              operation->location.offset + kEntryHeaderBytes + operation->from,
                              operation->bytes(), 0};
    }
  }
  Submit(operation, std::span(descriptors, count));
}

void QuorumClient::ReadEntry(Operation* operation, Location location) {
  Connection& c = *operation->connection;
  if (!layout::LocationFits(location, c.geometry.data_bytes)) {
    TornOperation(operation);
    return;
  }
  operation->stage = Operation::Stage::kEntry;
  operation->location = location;
  operation->entry_read = true;
  operation->payload = location.length > operation->from ? location.length - operation->from : 0;
  const size_t needed = kBucketBytes + kEntryHeaderBytes + operation->payload;
  if (operation->buffer.size() < needed) operation->buffer.resize(needed);
  ReadDescriptor descriptors[2];
  size_t count = 0;
  if (operation->from == 0) {
    // Header and payload lie together, here as there.
    descriptors[count++] = {layout::kDataRegion, kEntryHeaderBytes + operation->payload,
                            location.offset, operation->header(), 0};
  } else {
    descriptors[count++] = {layout::kDataRegion, kEntryHeaderBytes, location.offset,
                            operation->header(), 0};
    if (operation->payload > 0) {
      descriptors[count++] = {layout::kDataRegion, operation->payload,
                              location.offset + kEntryHeaderBytes + operation->from,
                              operation->bytes(), 0};
    }
  }
  Submit(operation, std::span(descriptors, count));
}

void QuorumClient::OnReady(const ConnectionPtr& connection, uint64_t attempt) {
  const BatchScope scope(this);
  Connection& c = *connection;
  fabric::Completion completions[64];
  while (c.attempt == attempt && c.endpoint != nullptr) {
    const size_t count = c.endpoint->Poll(completions);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t index = completions[i].token & 0xffffff;
      if (index >= operations_.size() || operations_[index] == nullptr ||
          operations_[index]->token != completions[i].token) {
        continue;  // of an operation that was given up
      }
      Operation* operation = operations_[index].get();
      operation->worst = std::max(operation->worst, completions[i].status);
      if (--operation->pending == 0) OnCompleted(operation);
    }
    if (count < std::size(completions)) return;
  }
}

void QuorumClient::OnCompleted(Operation* operation) {
  Connection& c = *operation->connection;
  const ReadStatus status = operation->worst;
  switch (operation->stage) {
    case Operation::Stage::kGeometry: {
      const std::vector<char> page = std::move(operation->buffer);
      const ConnectionPtr keep = operation->connection;
      FreeOperation(operation);
      OnGeometry(*keep, status, page.data());
      return;
    }
    case Operation::Stage::kHeartbeat: {
      const std::vector<char> page = std::move(operation->buffer);
      const ConnectionPtr keep = operation->connection;
      FreeOperation(operation);
      OnHeartbeat(*keep, status, page.data());
      return;
    }
    case Operation::Stage::kBucket:
    case Operation::Stage::kEntry:
      break;
  }
  if (status != ReadStatus::kOk) {
    const ConnectionPtr keep = operation->connection;
    EndOperation(operation, Found{}, "");
    OnReadError(*keep, status);
    return;
  }
  if (operation->batch->items[operation->item].finished) {
    // Another replica was enough, and the caller's chunk may be gone.
    EndOperation(operation, Found{}, "");
    return;
  }
  if (operation->stage == Operation::Stage::kBucket) {
    OnBucket(operation);
    return;
  }
  uint32_t length = 0;
  if (CheckEntry(operation, length) != Outcome::kFound) {
    TornOperation(operation);
    return;
  }
  LocationSlot(c, operation->key) = {operation->key, c.epoch, operation->location.offset, length};
  Found found = operation->found;
  found.outcome = Outcome::kFound;
  found.length = length;
  EndOperation(operation, found,
               std::string_view(operation->bytes(),
                                length > operation->from ? length - operation->from : 0));
}

void QuorumClient::OnBucket(Operation* operation) {
  Connection& c = *operation->connection;
  const bool is_chunk = operation->batch->items[operation->item].chunk != nullptr;
  layout::BucketHeader header;
  if (!layout::ParseBucket(operation->bucket(), header)) {
    TornOperation(operation);
    return;
  }
  SawConfiguration(header.configuration);
  operation->found.saw_bucket = true;
  operation->found.doorbell = header.doorbell;
  uint32_t way = 0;
  const std::optional<Location> location =
      layout::FindInBucket(operation->bucket(), operation->key, way);
  if (operation->entry_read) {
    // Old bytes of a chunk are right bytes wherever they lie; an old value is old, so the bucket
    // must still point to it.
    uint32_t length = 0;
    const bool current = location.has_value() && location->offset == operation->location.offset;
    if ((is_chunk || current) && CheckEntry(operation, length) == Outcome::kFound &&
        (current || length >= operation->batch->items[operation->item].chunk->want)) {
      LocationSlot(c, operation->key).length = length;
      Found found = operation->found;
      found.outcome = Outcome::kFound;
      found.length = length;
      EndOperation(operation, found,
                   std::string_view(operation->bytes(),
                                    length > operation->from ? length - operation->from : 0));
      return;
    }
  }
  if (location.has_value()) {
    ReadEntry(operation, *location);
    return;
  }
  Found found = operation->found;
  found.outcome =
      (header.flags & layout::kFlagOverflow) != 0 ? Outcome::kOverflowed : Outcome::kAbsent;
  EndOperation(operation, found, "");
}

QuorumClient::Outcome QuorumClient::CheckEntry(Operation* operation, uint32_t& length) {
  layout::EntryHeader header;
  if (!ParseEntry(*operation->connection, operation->header(), operation->key,
                  operation->location.offset, operation->stage == Operation::Stage::kBucket,
                  header)) {
    return Outcome::kTorn;
  }
  length = header.length;
  if (header.length <= operation->from) return Outcome::kFound;
  const uint32_t added = header.length - operation->from;
  if (added > operation->payload) return Outcome::kTorn;  // it grew since the bucket was read
  const uint32_t crc = Crc32cExtend(operation->from_crc, operation->bytes(), added);
  return PayloadFits(crc, header) ? Outcome::kFound : Outcome::kTorn;
}

void QuorumClient::TornOperation(Operation* operation) {
  if (++operation->torn > options_.torn_retries_max) {
    ++counters_.replica_errors;
    EndOperation(operation, Found{}, "");
    return;
  }
  ++counters_.torn_retries;
  ReadBucket(operation);
}

void QuorumClient::EndOperation(Operation* operation, Found found, std::string_view value) {
  // Taken out of the table first: what follows may lose connections and free their operations.
  const std::unique_ptr<Operation> own = std::move(operations_[operation->index]);
  FreeOperation(operation);
  const BatchPtr batch = std::move(operation->batch);
  Item& item = batch->items[operation->item];
  if (!item.finished && item.chunk != nullptr && found.outcome == Outcome::kFound) {
    // Others may have brought more of the chunk meanwhile.
    ChunkRead& read = *item.chunk;
    const uint32_t have = std::max(read.have, read.length);
    const uint32_t end = std::min(found.length, read.capacity);
    if (end > have) {
      const char* added = value.data() + (have - operation->from);
      std::memcpy(read.destination + have, added, end - have);
      read.crc = Crc32cExtend(read.crc, added, end - have);
      read.length = end;
      counters_.useful_bytes += end - have;
    }
  }
  OnFound(batch, operation->item, operation->replica, found, value);
}

// ---- Mutations ----

void QuorumClient::Mutate(std::vector<Mutation> mutations, Duration timeout,
                          Callback<void(Status)> done) {
  auto bulk = std::make_shared<Bulk>();
  bulk->done = std::move(done);
  bulk->keys = static_cast<uint32_t>(mutations.size());
  counters_.mutations += mutations.size();
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> open(connections_.size(), kNone);  // request that is being filled, by replica
  for (uint32_t i = 0; i < mutations.size(); ++i) {
    const Mutation& mutation = mutations[i];
    const Owners owners = ring_.OwnersOf(mutation.key);
    bulk->core.AddKey(owners.count);
    for (uint8_t r = 0; r < owners.count; ++r) {
      size_t& request = open[owners.replica[r]];
      if (request == kNone || bulk->requests[request].bytes >= options_.request_bytes_max) {
        request = bulk->requests.size();
        bulk->requests.emplace_back();
        bulk->requests.back().connection = connections_[owners.replica[r]];
      }
      Bulk::Request& target = bulk->requests[request];
      target.keys.push_back(i);
      target.bytes += mutation.value.size() + 32;
      wire::Append(*target.message.mutable_batch(), mutation.key, mutation.rule, mutation.erase,
                   mutation.erase ? std::string_view() : std::string_view(mutation.value));
    }
  }
  for (size_t request = 0; request < bulk->requests.size(); ++request) {
    SendMutations(bulk, request, timeout);
  }
  if (bulk->core.decided()) FinishBulk(bulk);
}

void QuorumClient::SendMutations(const std::shared_ptr<Bulk>& bulk, size_t index,
                                 Duration timeout) {
  Bulk::Request& request = bulk->requests[index];
  Connection& c = *request.connection;
  if (c.rpc == nullptr || c.inflight_bytes + request.bytes > options_.inflight_bytes_max) {
    // Counts as a failure of this replica alone, like any other.
    ++counters_.replica_errors;
    for (const uint32_t key : request.keys) bulk->core.OnFailure(key);
    return;
  }
  c.inflight_bytes += request.bytes;
  request.call = drains_.Begin();
  request.message.set_configuration_id(config_.configuration_id);
  std::string bytes = request.message.SerializeAsString();
  request.message.Clear();
  c.rpc->Call("/" + options_.service + "/Mutate", std::move(bytes), timeout,
              [alive = alive_, bulk, index](Result<std::string> reply) {
                if (*alive != nullptr) (*alive)->OnMutated(bulk, index, std::move(reply));
              });
}

void QuorumClient::OnMutated(const std::shared_ptr<Bulk>& bulk, size_t index,
                             Result<std::string> bytes) {
  Bulk::Request& request = bulk->requests[index];
  request.connection->inflight_bytes -= request.bytes;
  v1::CacheMutateReply reply;
  const bool fits =
      bytes.ok() && reply.ParseFromString(*bytes) && reply.results().size() == request.keys.size();
  if (!fits) ++counters_.replica_errors;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    const auto result = fits ? static_cast<uint8_t>(reply.results()[i]) : 0xff;
    if (result > static_cast<uint8_t>(MutationResult::kRefused)) {
      bulk->core.OnFailure(request.keys[i]);
      continue;
    }
    if (result == static_cast<uint8_t>(MutationResult::kMismatch)) ++counters_.mismatches;
    bulk->core.OnResult(request.keys[i], static_cast<MutationResult>(result));
  }
  if (fits) SawConfigurationId(reply.configuration_id());
  if (bulk->core.decided()) FinishBulk(bulk);
  drains_.End(request.call);
}

void QuorumClient::Drain(Callback<void()> done) { drains_.Drain(std::move(done)); }

void QuorumClient::FinishBulk(const std::shared_ptr<Bulk>& bulk) {
  if (std::exchange(bulk->answered, true)) return;
  const MutationCore::Summary summary = bulk->core.summary();
  counters_.mutation_failures += summary.failed;
  Status status;
  if (summary.mismatched > 0) {
    status =
        DataLossError(std::to_string(summary.mismatched) + " of " + std::to_string(bulk->keys) +
                      " keys held bytes that contradict those written; both were dropped");
  } else if (summary.failed > 0) {
    const std::string text = std::to_string(summary.failed) + " of " + std::to_string(bulk->keys) +
                             " keys have fewer than two acknowledgements";
    status = summary.refused > 0 ? ResourceExhaustedError(text + " (refused: no room)")
                                 : UnavailableError(text);
  }
  loop_->Post([alive = alive_, bulk, status = std::move(status)]() mutable {
    if (*alive != nullptr) std::exchange(bulk->done, nullptr)(std::move(status));
  });
}

// ---- Watches ----

uint64_t QuorumClient::WatchValue(Key key, Duration timeout, Callback<void(bool)> notify) {
  ++counters_.watches;
  const uint64_t id = next_watch_++;
  auto watch = std::make_unique<Watch>();
  watch->id = id;
  watch->key = key;
  watch->deadline = loop_->Now() + timeout;
  watch->notify = std::move(notify);
  Watch& placed = *watch;
  watches_.emplace(id, std::move(watch));
  if (!StartWatch(placed)) PostNotify(id, false);
  return id;
}

bool QuorumClient::StartWatch(Watch& watch) {
  const auto remembered = values_by_key_.find(watch.key);
  if (remembered == values_by_key_.end()) return false;
  const RememberedValue& value = *remembered->second;
  const Owners owners = PreferredOwners(watch.key);
  for (uint8_t i = 0; i < owners.count; ++i) {
    const ConnectionPtr& connection = connections_[owners.replica[i]];
    Connection& c = *connection;
    if ((watch.tried & (1u << i)) != 0 || !ReadyNow(c) || value.epochs[i] != c.epoch ||
        !c.endpoint->capabilities().watch) {
      continue;
    }
    watch.tried |= static_cast<uint8_t>(1u << i);
    watch.connection = connection;
    watch.attempt = c.attempt;
    ++c.watches;
    const Duration left = std::max(watch.deadline - loop_->Now(), Duration());
    watch.endpoint_watch = c.endpoint->Watch(
        layout::kIndexRegion,
        layout::BucketOffset(layout::BucketOf(watch.key, c.geometry.bucket_count)),
        value.doorbells[i], left,
        [alive = alive_, id = watch.id, attempt = c.attempt](fabric::WatchOutcome outcome) {
          if (*alive != nullptr) (*alive)->OnDoorbell(id, attempt, outcome);
        });
    KeepHeartbeat(connection);
    return true;
  }
  return false;
}

void QuorumClient::OnDoorbell(uint64_t id, uint64_t attempt, fabric::WatchOutcome outcome) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Watch& watch = *found->second;
  if (watch.connection == nullptr || watch.attempt != attempt) return;  // moved meanwhile
  const ConnectionPtr connection = std::move(watch.connection);
  watch.endpoint_watch = 0;
  --connection->watches;
  switch (outcome) {
    case fabric::WatchOutcome::kChanged:
    case fabric::WatchOutcome::kTimeout:
      Notify(id, true);
      return;
    case fabric::WatchOutcome::kRefused:
      ++counters_.watch_refusals;
      break;
    case fabric::WatchOutcome::kUnreachable:
      OnReadError(*connection, ReadStatus::kUnreachable);
      break;
  }
  if (watches_.contains(id) && !StartWatch(watch)) Notify(id, false);
}

void QuorumClient::PostNotify(uint64_t id, bool watched) {
  loop_->Post([alive = alive_, id, watched] {
    if (*alive != nullptr) (*alive)->Notify(id, watched);
  });
}

void QuorumClient::Notify(uint64_t id, bool watched) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  if (watched) ++counters_.notifications;
  Callback<void(bool)> notify = std::move(found->second->notify);
  CancelWatch(id);
  notify(watched);
}

void QuorumClient::CancelWatch(uint64_t id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  Watch& watch = *found->second;
  if (watch.connection != nullptr) {
    --watch.connection->watches;
    if (watch.connection->endpoint != nullptr && watch.connection->attempt == watch.attempt) {
      watch.connection->endpoint->CancelWatch(watch.endpoint_watch);
    }
  }
  watches_.erase(found);
}

void QuorumClient::MoveWatches(Connection& c) {
  if (c.watches == 0) return;
  std::vector<uint64_t> ids;
  for (const auto& [id, watch] : watches_) {
    if (watch->connection.get() == &c) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const uint64_t id : ids) {
    Watch& watch = *watches_.at(id);
    if (c.endpoint != nullptr) c.endpoint->CancelWatch(watch.endpoint_watch);
    --c.watches;
    watch.connection = nullptr;
    // On a turn of its own: this may be in the middle of anything.
    loop_->Post([alive = alive_, id] {
      if (*alive == nullptr) return;
      const auto found = (*alive)->watches_.find(id);
      if (found == (*alive)->watches_.end() || found->second->connection != nullptr) return;
      if (!(*alive)->StartWatch(*found->second)) (*alive)->Notify(id, false);
    });
  }
}

void QuorumClient::KeepHeartbeat(const ConnectionPtr& connection) {
  if (std::exchange(connection->heartbeat_running, true)) return;
  loop_->After(options_.heartbeat_interval,
               [alive = alive_, weak = std::weak_ptr<Connection>(connection)] {
                 const ConnectionPtr strong = weak.lock();
                 if (*alive == nullptr || strong == nullptr) return;
                 QuorumClient& self = **alive;
                 Connection& c = *strong;
                 c.heartbeat_running = false;
                 if (c.watches == 0 || c.state != Connection::State::kReady) {
                   c.heart.Reset();
                   return;
                 }
                 if (c.immediate) {
                   char page[layout::kHeaderBytes];
                   const ReadDescriptor descriptor{layout::kIndexRegion, sizeof(page), 0, page, 0};
                   self.OnHeartbeat(c, self.ReadNow(c, std::span(&descriptor, 1)), page);
                 } else {
                   Operation* operation = self.NewOperation(strong);
                   operation->stage = Operation::Stage::kHeartbeat;
                   ReadDescriptor descriptor{layout::kIndexRegion, layout::kHeaderBytes, 0,
                                             operation->bucket(), 0};
                   self.Submit(operation, std::span(&descriptor, 1));
                 }
                 self.KeepHeartbeat(strong);
               });
}

void QuorumClient::OnHeartbeat(Connection& c, ReadStatus status, const char* page) {
  if (status == ReadStatus::kOk) {
    c.heart.OnBeat(loop_->Now(), layout::LoadWord(page + layout::kHeartbeatOffset));
    if (c.heart.Alive(loop_->Now())) return;
    kLog.Warn("replica ", c.replica.name, " stopped beating; its watches move");
    ++counters_.replica_errors;
    c.health.OnFailure(loop_->Now());
    c.heart.Reset();
  } else {
    OnReadError(c, status);
  }
  MoveWatches(c);
}

}  // namespace tailcast::cache
