// What the tests of the cores share: an operation without loop, stream and stores.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/base/metrics.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/term.h"
#include "tailcast/writer/life_core.h"

namespace tailcast::writer {

inline MonotonicTime At(int64_t ms) { return MonotonicTime::FromMicros(ms * 1000); }

inline stream::Operation TestOperation(stream::Layer layer, bool fresh) {
  stream::Operation operation;
  operation.target.file.shard.stream = {"flights", stream::StreamIncarnation{5}};
  operation.target.file.stem = {7, 1000, 4096, 3};
  operation.target.layer = layer;
  operation.target.cell = "eu";
  operation.id = {stream::Term{.attempt = 7}, stream::Nonce{1}};
  operation.source_cell = "us";
  operation.chunk_size = 512;
  operation.fresh = fresh;
  return operation;
}

// Index records for payloads of these lengths, one after the other from `offset` on.
inline std::string Records(std::initializer_list<uint32_t> lengths, int64_t offset = 0) {
  std::string out;
  for (uint32_t length : lengths) {
    stream::IndexRecord{offset, length, 0, 5}.AppendTo(out);
    offset += length;
  }
  return out;
}

// Drives one core: every input gives the effects of that input alone.
template <typename Core>
class CoreTest : public ::testing::Test {
 protected:
  void Make(bool fresh, Seal seal = std::nullopt) {
    constexpr auto kLayer = Core::kLayer;
    stream::Operation operation = TestOperation(kLayer, fresh);
    if (seal) {
      for (int p = 0; p < stream::kParts; ++p) operation.seal[p] = (*seal)[p];
    }
    core_.reset();
    context_.reset(new CoreContext{options_, operation, stream::FileSteps(), counters_, buffers_});
    core_ = std::make_unique<Core>(*context_);
  }

  // core().method(now, arguments..., out)
  template <typename Method, typename... Arguments>
  Effects Give(Method method, Arguments&&... arguments) {
    Effects out;
    ((*core_).*method)(now_, std::forward<Arguments>(arguments)..., out);
    return out;
  }
  Effects Work() { return Give(&Core::DoWork); }
  // The lock is free: the operation takes it.
  Effects TakeLock() { return Give(&Core::OnLockRead, std::nullopt); }
  // Somebody else's lock; TestOperation is attempt 7.
  static stream::LockValue Other(uint32_t attempt) {
    return {stream::Term{.attempt = attempt}, 99, stream::LockState::kHeld};
  }

  Core& core() { return *core_; }
  const LifeCore& life() const { return core_->life(); }

  MetricRegistry metrics_;
  Counters counters_{metrics_};
  BufferShare buffers_{48 << 20, counters_.buffered_primary};
  WriterOptions options_{.name = "writer-1", .cell = "eu"};
  MonotonicTime now_ = At(1000);

 private:
  std::unique_ptr<CoreContext> context_;
  std::unique_ptr<Core> core_;
};

// All effects of one kind, in order.
template <typename T>
std::vector<T> All(const Effects& effects) {
  std::vector<T> found;
  for (const Effect& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  }
  return found;
}
template <typename T>
bool Has(const Effects& effects) {
  return !All<T>(effects).empty();
}
// The only effect of its kind.
template <typename T>
T The(const Effects& effects) {
  const std::vector<T> found = All<T>(effects);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? T() : found.front();
}
// That the release of the operation's lock was written.
inline bool Releases(const Effects& effects) {
  for (const WriteLock& write : All<WriteLock>(effects)) {
    if (write.value.state == stream::LockState::kReleased) return true;
  }
  return false;
}

}  // namespace tailcast::writer
