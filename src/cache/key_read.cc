#include "tailcast/cache/key_read.h"

#include <algorithm>
#include <span>
#include <utility>

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
  context.counters.useful_bytes += core.bytes_added();
  if (answer.saw_bucket) context.configuration.SawLowHalf(answer.bucket.configuration);
  if (answer.outcome == KeyOutcome::kTorn) ++context.counters.read_torn;
  if (answer.outcome == KeyOutcome::kContradicts) ++context.counters.mismatches;
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

class KeyFabricRead : public FabricRead {
 public:
  KeyFabricRead(ClientContext& context, ReplicaLink& link, const Key& key, ChunkRead* chunk,
                ReadSlots::Slot slot, KeyReadDone done)
      : context_(context),
        link_(link),
        key_(key),
        chunk_(chunk),
        core_(chunk != nullptr
                  ? KeyReadCore(link.geometry(), context.options.torn_retries_max, chunk,
                                layout::kValueBytesMax)
                  : KeyReadCore(link.geometry(), context.options.torn_retries_max, key)),
        slot_(std::move(slot)),
        done_(std::move(done)) {}

  void Start() {
    const layout::Generation generation = link_.geometry().generation;
    const LocationTable::Slot& place = context_.locations.SlotOf(generation, key_);
    Location remembered = place.location;
    if (chunk_ != nullptr) {
      remembered.length = std::min(chunk_->capacity, chunk_->want + kSpeculationBytes);
      memory_.reserve(kPayloadAt + chunk_->capacity);
    }
    core_.Start(place.Holds(generation, key_) ? &remembered : nullptr, /*with_bucket=*/true);
  }
  // Gives what the core wants next to the link.
  void Submit(std::unique_ptr<FabricRead> self) {
    const size_t needed = kPayloadAt + std::max(core_.request().to, core_.from()) - core_.from();
    if (memory_.size() < needed) memory_.resize(needed);
    Descriptors descriptors(core_, bucket(), header(), payload());
    link_.Submit(std::move(self), descriptors.span());
  }

  void OnCompleted(std::unique_ptr<FabricRead> self, ReadStatus status) override {
    if (status != ReadStatus::kOk) {
      Finish({}, "");
      link_.OnReadError(status, submitted_at());
      return;
    }
    // Others may have been enough, and the caller's chunk may be gone.
    if (done_.dropped() || (chunk_ != nullptr && chunk_->length >= chunk_->want)) {
      return Finish({}, "");
    }
    core_.OnRead({bucket(), header(), payload()});
    if (!core_.done()) return Submit(std::move(self));
    const KeyAnswer& answer = core_.answer();
    const bool found = answer.outcome == KeyOutcome::kFound;
    if (found)
      context_.locations.SlotOf(answer.generation, key_) = {key_, answer.generation,
                                                            core_.location()};
    Finish(answer, found && chunk_ == nullptr ? std::string_view(payload(), answer.length) : "");
  }
  void OnLost() override { Finish({}, ""); }

 private:
  // [0, 128) bucket, [128, 192) entry header, [192, ...) payload.
  static constexpr size_t kPayloadAt = kBucketBytes + kEntryHeaderBytes;
  char* bucket() { return memory_.data(); }
  char* header() { return memory_.data() + kBucketBytes; }
  char* payload() { return memory_.data() + kPayloadAt; }

  void Finish(const KeyAnswer& answer, std::string_view value) {
    slot_.GiveBack();
    Conclude(context_, core_);
    std::exchange(done_, nullptr)(answer, value);
  }

  ClientContext& context_;
  ReplicaLink& link_;
  const Key key_;
  ChunkRead* const chunk_;
  KeyReadCore core_;
  ReadSlots::Slot slot_;
  KeyReadDone done_;
  std::vector<char> memory_ = std::vector<char>(kPayloadAt);
};

}  // namespace

KeyAnswer ReadChunkNow(ClientContext& context, ReplicaLink& link, ChunkRead& read) {
  KeyReadCore core(link.geometry(), context.options.torn_retries_max, &read, read.capacity);
  const layout::Generation generation = link.geometry().generation;
  LocationTable::Slot& place = context.locations.SlotOf(generation, read.key);
  const bool remembered = place.Holds(generation, read.key);
  const Location location{place.location.offset, read.want};
  core.Start(remembered ? &location : nullptr, /*with_bucket=*/false);
  char bucket[kBucketBytes];
  char header[kEntryHeaderBytes];
  const KeyAnswer answer = ReadNow(context, link, core, bucket, header, [&] {
    // A value that is longer than the reader has room for can only be validated whole.
    return core.request().to > read.capacity ? context.scratch.data()
                                             : read.destination + core.from();
  });
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

void StartKeyRead(ClientContext& context, ReplicaLink& link, const Key& key, ChunkRead* chunk,
                  ReadSlots::Slot slot, KeyReadDone done) {
  auto read =
      std::make_unique<KeyFabricRead>(context, link, key, chunk, std::move(slot), std::move(done));
  KeyFabricRead& started = *read;
  started.Start();
  started.Submit(std::move(read));
}

}  // namespace tailcast::cache
