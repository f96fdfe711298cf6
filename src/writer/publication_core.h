// What an operation publishes of its file in the metadata cache, and when: what is new is merged
// into what was told before and written at once, one write at a time; a write that failed is
// repeated after a delay that doubles.
//
//   idle ──Add: news──► writing ──written, no news meanwhile──► idle
//                        │   ▲
//                  failed│   │ retry_at()
//                        ▼   │
//                       waiting
//
// The source's heartbeats are published once everything that they cover was written here.
//
// A core: no clock, no I/O, one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "tailcast/base/time.h"
#include "tailcast/writer/effects.h"

namespace tailcast::writer {

class PublicationCore {
 public:
  enum class State : uint8_t { kIdle, kWriting, kWaiting };
  struct Options {
    Duration retry_delay;
    Duration retry_delay_max;
  };
  static constexpr size_t kHeartbeatsMax = 16;

  // `about` goes with everything that is published: what names the pair.
  PublicationCore(Options options, const stream::PairMetadata& about);

  // Merges into what is to be published.
  void Add(const stream::PairMetadata& news);
  // The source was alive at `as_of_us` with these lengths.
  void OnHeartbeat(int64_t as_of_us, const Lengths& lengths);
  // These lengths are written: the heartbeats that they cover are news.
  void OnWritten(const Lengths& written);

  // What was written may be lost (a new cache epoch): all of it is news again, and is not waited
  // for.
  void OnNewEpoch();

  // What is to be written now, if anything; answered by OnPublished.
  std::optional<stream::PairMetadata> NextWrite(MonotonicTime now);
  // Ignored unless a write is under way.
  void OnPublished(MonotonicTime now, bool ok);

  State state() const { return state_; }
  // All news are written.
  bool settled() const { return state_ == State::kIdle && !dirty_; }
  int failures() const { return failures_; }  // in a row
  // When NextWrite has something again after a failure; Max: it need not be asked.
  MonotonicTime retry_at() const {
    return state_ == State::kWaiting ? retry_at_ : MonotonicTime::Max();
  }

 private:
  struct Heartbeat {
    int64_t as_of_us;
    Lengths lengths;
  };

  const Options options_;
  const stream::PairMetadata about_;
  State state_ = State::kIdle;
  stream::PairMetadata metadata_;
  bool dirty_ = false;  // has what the last write had not
  int failures_ = 0;
  MonotonicTime retry_at_;
  std::deque<Heartbeat> heartbeats_;
};

}  // namespace tailcast::writer
