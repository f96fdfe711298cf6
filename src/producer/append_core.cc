#include "tailcast/producer/append_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/fault_point.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/stream/message_headers.h"

namespace tailcast::producer {
namespace {

FAULT_POINT(kIndexBeforeData, "producer.index_before_data",
            "an index record is appended before its payload's flush was acknowledged");
FAULT_POINT(kAckBeforeIndex, "producer.ack_before_index",
            "a message is acknowledged when its payload is flushed");

// Moves `from` to the end of `to`.
void Append(Batch& to, Batch from) {
  if (to.messages.empty()) {
    to = std::move(from);
    return;
  }
  const auto shift = static_cast<uint32_t>(to.messages.size());
  to.bytes += from.bytes;
  to.messages.insert(to.messages.end(), from.messages.begin(), from.messages.end());
  for (auto& [index, ack] : from.acks) to.acks.emplace_back(index + shift, std::move(ack));
}

// Cuts the first `count` messages off `batch`.
Batch CutFront(Batch& batch, size_t count) {
  Batch front;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += batch.messages[i].length;
  front.bytes = batch.bytes.substr(0, bytes);
  batch.bytes.erase(0, bytes);
  const auto cut = batch.messages.begin() + static_cast<std::ptrdiff_t>(count);
  front.messages.assign(batch.messages.begin(), cut);
  batch.messages.erase(batch.messages.begin(), cut);
  std::vector<std::pair<uint32_t, AckCallback>> rest;
  for (auto& [index, ack] : batch.acks) {
    if (index < count)
      front.acks.emplace_back(index, std::move(ack));
    else
      rest.emplace_back(index - static_cast<uint32_t>(count), std::move(ack));
  }
  batch.acks = std::move(rest);
  return front;
}

}  // namespace

Message MessageOf(std::string_view headers, std::string_view payload) {
  TAILCAST_CHECK(headers.size() <= stream::kHeadersBytesMax,
                 "more headers than a message may have");
  return {.length = static_cast<uint32_t>(headers.size() + payload.size()),
          .crc = Crc32cExtend(Crc32c(headers), payload.data(), payload.size()),
          .headers_length = static_cast<uint16_t>(headers.size())};
}

void AppendCore::Enter(FileState next) {
  bool drawn = false;
  switch (next) {
    case FileState::kNone:
      break;
    case FileState::kOpen:
      drawn = file_ != FileState::kFenced && file_ != FileState::kEnded;
      break;
    case FileState::kHeld:
      drawn = file_ == FileState::kOpen;
      break;
    case FileState::kGivenUp:
      drawn = is_open();
      break;
    case FileState::kFenced:
      drawn = is_open() || file_ == FileState::kGivenUp;
      break;
    case FileState::kEnded:
      drawn = file_ != FileState::kEnded;
      break;
  }
  TAILCAST_CHECK(drawn, "a file from state " + std::to_string(static_cast<int>(file_)) + " to " +
                            std::to_string(static_cast<int>(next)));
  file_ = next;
}

void AppendCore::Hold(bool held) {
  TAILCAST_CHECK(is_open(), "held while no file is open");
  Enter(held ? FileState::kHeld : FileState::kOpen);
}

void AppendCore::Fail(storage::AppendOutcome outcome) {
  if (outcome == storage::AppendOutcome::kFenced) {
    if (!fenced()) Enter(FileState::kFenced);
  } else if (is_open()) {
    Enter(FileState::kGivenUp);
  }
}

void AppendCore::Add(Batch batch) {
  buffered_bytes_ += static_cast<int64_t>(batch.bytes.size());
  unacknowledged_ += static_cast<int64_t>(batch.messages.size());
  Append(waiting_, std::move(batch));
}

bool AppendCore::AtMessageBoundary(int64_t number, int64_t byte) const {
  int64_t at_number = durable_number_;
  int64_t at_byte = durable_byte_;
  for (const Flush& flush : unacked_) {
    for (const Message& message : flush.batch.messages) {
      if (at_number >= number) break;
      ++at_number;
      at_byte += message.length;
    }
  }
  return at_number == number && at_byte == byte;
}

bool AppendCore::Open(int64_t start_number, int64_t start_byte, AppendEffects& out) {
  TAILCAST_CHECK(quiet(), "opened while an append is outstanding");
  if (file_ == FileState::kNone) {
    durable_number_ = start_number;
    durable_byte_ = start_byte;
  }
  if (!AtMessageBoundary(start_number, start_byte)) return false;
  // What the old file turned out to have.
  while (durable_number_ < start_number) {
    Flush flush = std::move(unacked_.front());
    unacked_.pop_front();
    const auto count = static_cast<int64_t>(flush.batch.messages.size());
    const int64_t durable = std::min(count, start_number - durable_number_);
    if (durable < count) {
      Flush rest;
      Batch front = CutFront(flush.batch, static_cast<size_t>(durable));
      rest.batch = std::exchange(flush.batch, std::move(front));
      unacked_.push_front(std::move(rest));
    }
    durable_number_ += durable;
    durable_byte_ += static_cast<int64_t>(flush.batch.bytes.size());
    buffered_bytes_ -= static_cast<int64_t>(flush.batch.bytes.size());
    unacknowledged_ -= durable;
    last_time_us_ = std::max(last_time_us_, flush.batch.messages.back().time_us);
    out.durable.push_back(std::move(flush));
  }
  // The others go first into the new one.
  Batch again;
  for (Flush& flush : unacked_) {
    republished_ += static_cast<int64_t>(flush.batch.messages.size());
    Append(again, std::move(flush.batch));
  }
  unacked_.clear();
  if (!again.messages.empty()) {
    Append(again, std::move(waiting_));
    waiting_ = std::move(again);
    flush_soon_ = true;
  }
  Enter(FileState::kOpen);
  index_append_ = IndexAppend::kNone;
  start_number_ = next_number_ = start_number;
  start_byte_ = start_byte;
  data_started_ = index_done_ = covered_data_ = 0;
  data_done_ = indexed_ = 0;
  return true;
}

MonotonicTime AppendCore::NextFlush() const {
  if (file_ != FileState::kOpen || full() || data_in_flight_ || waiting_.messages.empty()) {
    return MonotonicTime::Max();
  }
  return DueAt();
}

Batch AppendCore::TakeForFile() {
  size_t count = 0;
  for (int64_t bytes = 0; count < waiting_.messages.size() && bytes < room(); ++count) {
    bytes += Taken(waiting_.messages[count].length);
  }
  if (count < waiting_.messages.size()) return CutFront(waiting_, count);
  return std::exchange(waiting_, Batch());
}

MonotonicTime AppendCore::DueAt() const {
  if (flush_soon_ || static_cast<int64_t>(waiting_.bytes.size()) >= options_.flush_bytes) {
    return last_flush_;
  }
  const bool settled = options_.self_clocked && cached_ && drained();
  return last_flush_ +
         (settled ? std::min(pause_, options_.flush_interval) : options_.flush_interval);
}

void AppendCore::Next(MonotonicTime now, AppendEffects& out) {
  if (!is_open()) return;
  if (file_ == FileState::kOpen && !full() && !data_in_flight_ && !waiting_.messages.empty() &&
      now >= DueAt()) {
    last_flush_ = now;
    ++flushes_;
    Flush flush;
    flush.batch = TakeForFile();
    flush_soon_ = !waiting_.messages.empty();  // it was due, too
    flush.first_number = next_number_;
    flush.first_byte = start_byte_ + data_started_;
    next_number_ += static_cast<int64_t>(flush.batch.messages.size());
    if (flush.batch.bytes.empty()) {
      ++data_done_;  // only empty messages: there is nothing to append before their records
    } else {
      out.data = AppendEffects::Append{data_started_, flush.batch.bytes};
      data_started_ += static_cast<int64_t>(flush.batch.bytes.size());
      data_in_flight_ = true;
    }
    unacked_.push_back(std::move(flush));
    if (kIndexBeforeData.planted() && data_in_flight_) ++data_done_;
  }
  if (index_append_ == IndexAppend::kNone && data_done_ > 0) {
    index_bytes_.clear();
    int64_t offset = covered_data_;
    for (indexed_ = 0; indexed_ < data_done_; ++indexed_) {
      for (const Message& message : unacked_[indexed_].batch.messages) {
        stream::IndexRecord{.offset = offset,
                            .length = message.length,
                            .crc = message.crc,
                            .time_us = message.time_us,
                            .headers_length = message.headers_length}
            .AppendTo(index_bytes_);
        offset += message.length;
      }
    }
    index_append_ = IndexAppend::kInFlight;
    out.index = AppendEffects::Append{index_done_, index_bytes_};
  }
}

void AppendCore::OnData(storage::AppendOutcome outcome, AppendEffects& out) {
  TAILCAST_CHECK(data_in_flight_, "no data append is outstanding");
  data_in_flight_ = false;
  if (outcome != storage::AppendOutcome::kApplied) {
    Fail(outcome);
    return;
  }
  if (kIndexBeforeData.planted()) return;  // was counted when it was started
  Flush& flush = unacked_[data_done_++];
  out.data_committed = AppendEffects::Committed{flush.first_byte - start_byte_, flush.batch.bytes};
  if (kAckBeforeIndex.planted()) {
    Flush early = {{std::string(), flush.batch.messages, std::exchange(flush.batch.acks, {})},
                   flush.first_number,
                   flush.first_byte};
    out.durable.push_back(std::move(early));
  }
}

void AppendCore::OnIndex(storage::AppendOutcome outcome, AppendEffects& out) {
  TAILCAST_CHECK(index_append_ == IndexAppend::kInFlight, "no index append is outstanding");
  const bool known =
      outcome == storage::AppendOutcome::kApplied || outcome == storage::AppendOutcome::kFenced;
  index_append_ = known ? IndexAppend::kNone : IndexAppend::kUnknown;
  if (outcome != storage::AppendOutcome::kApplied) {
    Fail(outcome);
    return;
  }
  for (size_t i = 0; i < indexed_; ++i) {
    Flush flush = std::move(unacked_.front());
    unacked_.pop_front();
    const auto bytes = static_cast<int64_t>(flush.batch.bytes.size());
    const auto messages = static_cast<int64_t>(flush.batch.messages.size());
    covered_data_ += bytes;
    durable_byte_ += bytes;
    durable_number_ += messages;
    buffered_bytes_ -= bytes;
    unacknowledged_ -= messages;
    last_time_us_ = flush.batch.messages.back().time_us;
    out.durable.push_back(std::move(flush));
  }
  data_done_ -= indexed_;
  indexed_ = 0;
  out.index_committed = AppendEffects::Append{index_done_, std::move(index_bytes_)};
  index_done_ += static_cast<int64_t>(out.index_committed->bytes.size());
  index_bytes_.clear();
  out.covered_data = covered_data_;
}

AppendCore::Lost AppendCore::TakeAll() {
  Lost lost;
  // Fenced before an index record could be appended: no seal will ever cover it.
  std::vector<Batch>& appended =
      fenced() && index_append_ == IndexAppend::kNone ? lost.failed : lost.unknown;
  for (Flush& flush : unacked_) appended.push_back(std::move(flush.batch));
  unacked_.clear();
  lost.failed.push_back(std::exchange(waiting_, Batch()));
  data_done_ = indexed_ = 0;
  data_in_flight_ = false;
  index_append_ = IndexAppend::kNone;
  buffered_bytes_ = unacknowledged_ = 0;
  Enter(FileState::kEnded);
  return lost;
}

}  // namespace tailcast::producer
