#include "tailcast/writer/publication_core.h"

#include <algorithm>

#include "tailcast/base/check.h"

namespace tailcast::writer {

using stream::PairMetadata;

PublicationCore::PublicationCore(Options options, const PairMetadata& about)
    : options_(options), about_(about) {}

void PublicationCore::Add(const PairMetadata& news) {
  const PairMetadata merged = stream::Merge(stream::Merge(metadata_, about_), news);
  if (merged == metadata_) return;
  metadata_ = merged;
  dirty_ = true;
}

void PublicationCore::OnHeartbeat(int64_t as_of_us, const Lengths& lengths) {
  if (heartbeats_.size() >= kHeartbeatsMax) heartbeats_.pop_back();  // the newest waits longest
  heartbeats_.push_back({as_of_us, lengths});
}

void PublicationCore::OnWritten(const Lengths& written) {
  PairMetadata news;
  while (!heartbeats_.empty() && heartbeats_.front().lengths[0] <= written[0] &&
         heartbeats_.front().lengths[1] <= written[1]) {
    news.heartbeat_us = std::max(news.heartbeat_us, heartbeats_.front().as_of_us);
    heartbeats_.pop_front();
  }
  if (news.heartbeat_us > metadata_.heartbeat_us) Add(news);
}

void PublicationCore::OnNewEpoch() {
  if (metadata_ == PairMetadata()) return;  // nothing was told yet
  dirty_ = true;
  failures_ = 0;
  if (state_ == State::kWaiting) state_ = State::kIdle;
}

std::optional<PairMetadata> PublicationCore::NextWrite(MonotonicTime now) {
  if (state_ == State::kWaiting && now >= retry_at_) state_ = State::kIdle;
  if (state_ != State::kIdle || !dirty_) return std::nullopt;
  state_ = State::kWriting;
  dirty_ = false;
  return metadata_;
}

void PublicationCore::OnPublished(MonotonicTime now, bool ok) {
  if (state_ != State::kWriting) return;
  if (ok) {
    failures_ = 0;
    state_ = State::kIdle;
    return;
  }
  ++failures_;
  dirty_ = true;
  state_ = State::kWaiting;
  retry_at_ = now + std::min(options_.retry_delay * (1 << std::min(failures_, 8)),
                             options_.retry_delay_max);
}

}  // namespace tailcast::writer
