#include "tailcast/cache/key_read.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tailcast/cache/key_scan.h"

namespace tailcast::cache {

using fabric::ReadDescriptor;
using fabric::ReadStatus;
using layout::kBucketBytes;
using layout::kEntryHeaderBytes;
using layout::Location;

namespace {

// Bytes beyond `want` that a speculative read of a growing chunk takes along, so that one that grew
// meanwhile still costs one round trip.
constexpr uint32_t kSpeculationBytes = 1024;

// What a request comes to at an endpoint.
struct Descriptors {
  ReadDescriptor all[3];
  size_t count = 0;

  // `payload`: where byte core.from() goes. Header and payload are one read if they lie together
  // here as they do there.
  Descriptors(const KeyReadCore& core, char* bucket, char* header, char* payload) {
    const KeyReadCore::Request& request = core.request();
    if (request.bucket) {
      all[count++] = {layout::kIndexRegion, kBucketBytes, core.bucket_offset(), bucket, 0};
    }
    const uint32_t bytes = request.to - request.from;
    if (request.header) {
      all[count++] = {layout::kDataRegion, kEntryHeaderBytes, request.entry, header, 0};
      if (request.from == 0 && payload == header + kEntryHeaderBytes) {
        all[count - 1].length += bytes;
        return;
      }
    }
    if (bytes > 0) {
      all[count++] = {layout::kDataRegion, bytes, request.entry + kEntryHeaderBytes + request.from,
                      payload + (request.from - core.from()), 0};
    }
  }
  std::span<ReadDescriptor> span() { return std::span(all, count); }
};

// What a read that has ended says about its replica.
void Conclude(ClientContext& context, const KeyReadCore& core) {
  const KeyAnswer& answer = core.answer();
  context.counters.torn_retries += core.torn_retries();
  context.counters.useful_bytes += answer.bytes_added;
  if (answer.saw_bucket) context.configuration.SawLowHalf(answer.bucket.configuration);
  if (answer.outcome == KeyOutcome::kTorn) ++context.counters.read_torn;
}

// `payload_of`: where byte core.from() of the payload goes.
template <typename PayloadOf>
KeyAnswer ReadNow(ClientContext& context, ReplicaLink& link, KeyReadCore& core, char* bucket,
                  char* header, PayloadOf payload_of) {
  while (!core.done()) {
    char* const payload = payload_of();
    Descriptors descriptors(core, bucket, header, payload);
    const ReadStatus status = link.ReadNow(descriptors.span());
    if (status != ReadStatus::kOk) {
      Conclude(context, core);
      link.OnReadError(status, context.loop.Now());
      KeyAnswer answer = core.answer();
      answer.outcome = KeyOutcome::kFailed;
      return answer;
    }
    for (const ReadDescriptor& descriptor : descriptors.span()) {
      context.counters.bytes_read += descriptor.length;
    }
    core.OnRead({bucket, header, payload});
  }
  Conclude(context, core);
  return core.answer();
}

}  // namespace

// Reads that are not under way, with their memory: none is allocated in the steady state.
class KeyReadPool {
 public:
  KeyRead* Take();
  void Put(KeyRead* read);
  ~KeyReadPool();

 private:
  std::vector<std::unique_ptr<KeyRead>> idle_;  // at most as many as there were at a time
};
std::shared_ptr<KeyReadPool> MakeKeyReadPool() { return std::make_shared<KeyReadPool>(); }

class KeyRead final : public FabricRead {
 public:
  // As StartKeyRead.
  void Start(ClientContext& context, ReplicaLink& link, const Key& key, ChunkTarget* target,
             bool land, ReadSlots::Slot slot, KeyReadDone done) {
    context_ = &context;
    link_ = &link;
    key_ = key;
    target_ = target;
    slot_ = std::move(slot);
    done_ = std::move(done);
    pooled_ = true;
    places_ = link.places();
    place_ = places_ != nullptr ? places_->Take() : nullptr;
    if (link.scans()) return StartScan(land);
    StartReads();
  }
  // See ReleaseLanding.
  void ReleaseLanding() {
    link_->Release(*this);
    released_ = true;
  }

  void OnCompleted(Ptr self, ReadStatus status) override {
    if (timed_out()) place_ = nullptr;  // see ReadPlaces
    if (status != ReadStatus::kOk) {
      Finish({}, "");
      link_->OnReadError(status, submitted_at());
      return;
    }
    // Others may have been enough, and the caller's chunk may be gone.
    if (done_.dropped() || (target_ != nullptr && target_->chunk->length >= target_->chunk->want)) {
      return Finish({}, "");
    }
    if (scanning_ && released_) return StartScan(/*land=*/false, std::move(self));
    if (scanning_) {
      TakeScanned();
    } else {
      Feed();
    }
    if (!core_->done()) return SubmitReads(std::move(self));
    const KeyAnswer& answer = core_->answer();
    const bool found = answer.outcome == KeyOutcome::kFound;
    if (found && (target_ == nullptr || !link_->scans())) {
      Place(answer.generation) = {key_, answer.generation, core_->location()};
    }
    Finish(answer, found && target_ == nullptr ? std::string_view(payload(), answer.length) : "");
  }
  void OnLost() override {
    pooled_ = false;  // it may outlive the pool
    Finish({}, "");
  }

 private:
  friend class KeyReadPool;
  // [0, 128) bucket, [128, 192) entry header, [192, ...) payload.
  static constexpr uint32_t kPayloadAt = kBucketBytes + kEntryHeaderBytes;
  // What a value is given room for that was not read before.
  static constexpr uint32_t kValueRoom = 2048;
  // Memory that an idle read keeps: a chunk's.
  static constexpr uint32_t kIdleBytesMax = kPayloadAt + 8192;

  void Dispose() override {
    if (pooled_) {
      context_->key_reads->Put(this);
    } else {
      delete this;
    }
  }

  char* memory() { return place_ != nullptr ? place_ : memory_.get(); }
  char* bucket() { return memory(); }
  char* header() { return memory() + kBucketBytes; }
  // What is landing begins behind the chunk's bytes: only a scan lands, and that is the first read.
  char* payload() { return landing_ ? target_->chunk->destination + core_->from() : own_payload(); }
  char* own_payload() { return memory() + kPayloadAt; }
  LocationTable::Slot& Place(layout::Generation generation) {
    return context_->locations.SlotOf(generation, key_);
  }

  // Room for so many bytes of payload; what is there stays. The rest has no values.
  void Reserve(uint32_t bytes) {
    const uint32_t needed = kPayloadAt + bytes;
    if (place_ != nullptr && needed <= ReadPlaces::kBytes) return;
    if (needed > memory_bytes_) {
      std::unique_ptr<char[]> larger(new char[needed]);
      if (memory_bytes_ > 0) std::memcpy(larger.get(), memory_.get(), memory_bytes_);
      memory_ = std::move(larger);
      memory_bytes_ = needed;
    }
    if (place_ == nullptr) return;
    std::memcpy(memory_.get(), place_, ReadPlaces::kBytes);
    LeavePlace();
  }
  // Nothing is under way to it.
  void LeavePlace() {
    if (place_ != nullptr) places_->GiveBack(std::exchange(place_, nullptr));
    places_.reset();
  }

  void MakeCore(uint32_t room) {
    const int retries = context_->options.torn_retries_max;
    if (target_ != nullptr) {
      core_.emplace(link_->geometry(), retries, target_->chunk, room);
    } else {
      core_.emplace(link_->geometry(), retries, key_);
    }
    scanning_ = landing_ = released_ = false;
  }

  void StartReads() {
    MakeCore(layout::kValueBytesMax);
    const layout::Generation generation = link_->geometry().generation;
    const LocationTable::Slot& place = Place(generation);
    Location remembered = place.location;
    if (target_ != nullptr) {
      const ChunkRead& chunk = *target_->chunk;
      remembered.length = std::min(chunk.capacity, chunk.want + kSpeculationBytes);
      Reserve(chunk.capacity);
    }
    core_->Start(place.Holds(generation, key_) ? &remembered : nullptr, /*with_bucket=*/true);
    SubmitReads(Ptr(this));
  }
  // Gives what the core wants next to the link.
  void SubmitReads(Ptr self) {
    Reserve(std::max(core_->request().to, core_->from()) - core_->from());
    Descriptors descriptors(*core_, bucket(), header(), payload());
    link_->Submit(std::move(self), descriptors.span());
  }
  void Feed() {
    // Entries bring bytes.
    if (target_ != nullptr && core_->state() != KeyReadCore::State::kBucket) {
      if (target_->landing != this) cache::ReleaseLanding(*target_);
    }
    core_->OnRead({bucket(), header(), payload()});
  }

  void StartScan(bool land) { StartScan(land, Ptr(this)); }
  void StartScan(bool land, Ptr self) {
    uint32_t room = kValueRoom;
    if (target_ != nullptr) {
      room = target_->chunk->capacity;
    } else if (const layout::Generation generation = link_->geometry().generation;
               Place(generation).Holds(generation, key_)) {
      room = std::max(room, Place(generation).location.length + kSpeculationBytes);
    }
    MakeCore(room);
    scanning_ = true;
    const uint32_t from = core_->from();
    const uint32_t bytes = room - std::min(room, from);
    landing_ = land && target_ != nullptr;
    Reserve(landing_ ? 0 : bytes);
    if (landing_) target_->landing = this;
    scan_.request = EncodeKeyScan(key_, from, room);
    scan_.parts[kScannedBucket] = {bucket(), kBucketBytes};
    scan_.parts[kScannedHeader] = {header(), kEntryHeaderBytes};
    scan_.parts[kScannedPayload] = {payload(), bytes};
    scan_.released = false;
    link_->SubmitScan(std::move(self), scan_);
  }
  // The server says where it found the entry: as if it had been remembered.
  void TakeScanned() {
    const auto length_of = [&](size_t part, fabric::RegionId region) {
      const fabric::Range& range = scan_.found.ranges[part];
      return part < scan_.found.count && range.region == region ? range.length : 0;
    };
    const uint32_t bucket_bytes = length_of(kScannedBucket, layout::kIndexRegion);
    const uint32_t header_bytes = length_of(kScannedHeader, layout::kDataRegion);
    const uint32_t payload_bytes = length_of(kScannedPayload, layout::kDataRegion);
    context_->counters.bytes_read += bucket_bytes + header_bytes + payload_bytes;
    const Location location{scan_.found.ranges[kScannedHeader].offset,
                            core_->from() + payload_bytes};
    scanning_ = false;
    core_->Start(header_bytes == kEntryHeaderBytes ? &location : nullptr, /*with_bucket=*/true);
    // A server that does not even find the bucket is read without its help.
    if (bucket_bytes == kBucketBytes &&
        scan_.found.ranges[kScannedBucket].offset == core_->bucket_offset()) {
      Feed();
    }
    StopLanding();
  }
  // Reads that follow have other memory.
  void StopLanding() {
    if (!landing_) return;
    if (core_->state() == KeyReadCore::State::kRest) {
      const uint32_t kept = core_->request().from - core_->from();
      Reserve(kept);
      std::memcpy(own_payload(), payload(), kept);
    }
    landing_ = false;
    target_->landing = nullptr;
  }

  void Finish(const KeyAnswer& answer, std::string_view value) {
    if (!done_.dropped() && target_ != nullptr && target_->landing == this) {
      target_->landing = nullptr;
    }
    slot_.GiveBack();
    Conclude(*context_, *core_);
    if (answer.outcome == KeyOutcome::kContradicts && !done_.dropped() && target_ != nullptr) {
      SayContradicts(*context_, *link_, *target_->chunk, answer.length, target_->brought_by);
    }
    std::exchange(done_, nullptr)(answer, value);
  }

  ClientContext* context_ = nullptr;
  ReplicaLink* link_ = nullptr;
  Key key_;
  ChunkTarget* target_ = nullptr;  // null: a value
  std::optional<KeyReadCore> core_;
  ReadSlots::Slot slot_;
  KeyReadDone done_;
  fabric::ScanRead scan_;
  bool pooled_ = false;
  bool scanning_ = false;  // what was submitted is a scan
  bool landing_ = false;   // its payload lands in the chunk's destination
  bool released_ = false;  // and was released before it came
  std::shared_ptr<ReadPlaces> places_;
  char* place_ = nullptr;  // instead of memory_
  std::unique_ptr<char[]> memory_;
  uint32_t memory_bytes_ = 0;
};

KeyRead* KeyReadPool::Take() {
  if (idle_.empty()) return new KeyRead();
  KeyRead* const read = idle_.back().release();
  idle_.pop_back();
  return read;
}

void KeyReadPool::Put(KeyRead* read) {
  read->slot_.GiveBack();  // of one that was not finished: its link is gone
  read->done_ = nullptr;
  read->LeavePlace();
  if (read->memory_bytes_ > KeyRead::kIdleBytesMax) {
    read->memory_.reset();
    read->memory_bytes_ = 0;
  }
  idle_.emplace_back(read);
}

KeyReadPool::~KeyReadPool() = default;

void ReleaseLanding(ChunkTarget& target) {
  if (target.landing != nullptr) std::exchange(target.landing, nullptr)->ReleaseLanding();
}

void SayContradicts(ClientContext& context, const ReplicaLink& link, const ChunkRead& read,
                    uint32_t length, const std::string* brought_by) {
  ++context.counters.chunk_mismatches;
  context.contradictions.Say(
      context.loop.Now(), read.key,
      std::to_string(length) + " bytes of " + link.replica().name + " contradict " +
          std::to_string(std::max(read.length, read.have)) + " bytes " +
          (brought_by != nullptr ? "of " + *brought_by : "that were read before") + "; those stay");
}

KeyAnswer ReadChunkNow(ClientContext& context, ReplicaLink& link, ChunkRead& read,
                       const std::string* brought_by) {
  KeyReadCore core(link.geometry(), context.options.torn_retries_max, &read, read.capacity);
  const layout::Generation generation = link.geometry().generation;
  LocationTable::Slot& place = context.locations.SlotOf(generation, read.key);
  const bool remembered = place.Holds(generation, read.key);
  const Location location{place.location.offset, read.want};
  core.Start(remembered ? &location : nullptr, /*with_bucket=*/false);
  char bucket[kBucketBytes];
  char header[kEntryHeaderBytes];
  const KeyAnswer answer = ReadNow(context, link, core, bucket, header, [&] {
    // A value that is longer than the reader has room for can only be validated whole. One that is
    // read from before the end of what the reader has may contradict it.
    const bool elsewhere =
        core.request().to > read.capacity || core.from() < std::max(read.have, read.length);
    return elsewhere ? context.scratch.data() : read.destination + core.from();
  });
  if (answer.outcome == KeyOutcome::kContradicts) {
    SayContradicts(context, link, read, answer.length, brought_by);
  }
  if (answer.outcome == KeyOutcome::kFound) {
    place = {read.key, generation, core.location()};
  } else if (remembered) {
    place.generation = layout::Generation::kNone;
  }
  return answer;
}

KeyAnswer ReadValueNow(ClientContext& context, ReplicaLink& link, const Key& key,
                       std::string_view& value) {
  KeyReadCore core(link.geometry(), context.options.torn_retries_max, key);
  core.Start(nullptr, /*with_bucket=*/true);
  char bucket[kBucketBytes];
  char* const header = context.scratch.data();
  char* const payload = header + kEntryHeaderBytes;
  const KeyAnswer answer =
      ReadNow(context, link, core, bucket, header, [payload] { return payload; });
  if (answer.outcome == KeyOutcome::kFound) value = {payload, answer.length};
  return answer;
}

void StartKeyRead(ClientContext& context, ReplicaLink& link, const Key& key, ChunkTarget* target,
                  bool land, ReadSlots::Slot slot, KeyReadDone done) {
  context.key_reads->Take()->Start(context, link, key, target, land, std::move(slot),
                                   std::move(done));
}

}  // namespace tailcast::cache
