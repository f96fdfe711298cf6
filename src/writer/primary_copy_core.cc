#include "tailcast/writer/primary_copy_core.h"

#include <algorithm>

#include "tailcast/stream/index_record.h"

namespace tailcast::writer {

using stream::kIndexRecordSize;
using stream::Part;

namespace {
constexpr size_t kSpareBytes = 64 << 10;
}  // namespace

PrimaryCopyCore::PrimaryCopyCore(PrimaryCopyOptions options, int64_t committed_data,
                                 int64_t committed_index)
    : options_(options) {
  TAILCAST_CHECK(committed_data >= 0 && committed_index >= 0 &&
                 committed_index % kIndexRecordSize == 0);
  parts_[0].committed = committed_data;
  parts_[1].committed = committed_index;
}

Status PrimaryCopyCore::OnBytes(Part which, int64_t position, std::string_view bytes) {
  PartState& part = parts_[static_cast<int>(which)];
  if (position < 0 || position > INT64_MAX - static_cast<int64_t>(bytes.size())) {
    return InvalidArgumentError("bytes.position " + std::to_string(position) + " is no position");
  }
  const int64_t end = part.end();
  if (position > end) {
    return InvalidArgumentError("bytes.position " + std::to_string(position) +
                                " leaves a hole after " + std::to_string(end) + " in part " +
                                std::to_string(static_cast<int>(which)));
  }
  if (position < end) {
    const size_t known = std::min<size_t>(bytes.size(), static_cast<size_t>(end - position));
    bytes.remove_prefix(known);
  }
  if (bytes.empty()) return OkStatus();
  part.buffer.append(bytes);
  return OkStatus();
}

Status PrimaryCopyCore::OnSeal(int64_t data_length, int64_t index_length) {
  if (data_length < 0 || index_length < 0 || index_length % kIndexRecordSize != 0) {
    return InvalidArgumentError("seal (" + std::to_string(data_length) + ", " +
                                std::to_string(index_length) + ") is no seal");
  }
  if (sealed_ && (seal_[0] != data_length || seal_[1] != index_length)) {
    return InvalidArgumentError("seal (" + std::to_string(data_length) + ", " +
                                std::to_string(index_length) + ") differs from the one before (" +
                                std::to_string(seal_[0]) + ", " + std::to_string(seal_[1]) + ")");
  }
  if (parts_[1].committed + parts_[1].appending > index_length) {
    return DataLossError("the index is committed up to " +
                         std::to_string(parts_[1].committed + parts_[1].appending) +
                         ", beyond its seal at " + std::to_string(index_length));
  }
  sealed_ = true;
  seal_[0] = data_length;
  seal_[1] = index_length;
  return OkStatus();
}

int64_t PrimaryCopyCore::buffered_bytes() const {
  int64_t bytes = 0;
  for (const PartState& part : parts_) bytes += part.end() - part.committed;
  return bytes;
}

std::string PrimaryCopyCore::TakeFront(PartState& part, size_t bytes) {
  std::string out;
  if (part.buffer_at == 0 && bytes == part.buffer.size()) {
    out = std::move(part.buffer);
    part.buffer.clear();
  } else {
    out = part.buffer.substr(part.buffer_at, bytes);
    part.buffer_at += bytes;
    if (part.buffer_at * 2 >= part.buffer.size()) {
      part.buffer.erase(0, part.buffer_at);
      part.buffer_at = 0;
      // A file that was behind once does not keep the room until it is whole.
      if (part.buffer.capacity() > 4 * part.buffer.size() + kSpareBytes) {
        part.buffer.shrink_to_fit();
      }
    }
  }
  part.appending = static_cast<int64_t>(out.size());
  return out;
}

Result<std::optional<PrimaryCopyCore::Append>> PrimaryCopyCore::NextAppend(Part which) {
  PartState& part = parts_[static_cast<int>(which)];
  if (part.appending > 0 || part.waiting() == 0) return std::optional<Append>();
  size_t size = std::min(part.waiting(), static_cast<size_t>(options_.append_bytes_max));
  if (sealed_) {
    const int64_t left = std::max<int64_t>(0, seal_[static_cast<int>(which)] - part.committed);
    size = std::min(size, static_cast<size_t>(left));
  }
  if (which == Part::kIndex) {
    size_t good = 0;
    const std::string_view waiting = std::string_view(part.buffer).substr(part.buffer_at);
    while (good + kIndexRecordSize <= size) {
      const auto record = stream::IndexRecord::Decode(waiting.data() + good);
      if (!record || record->offset < last_payload_end_) {
        return DataLossError("index record at " +
                             std::to_string(part.committed + static_cast<int64_t>(good)) +
                             (record ? " goes back to data byte " + std::to_string(record->offset) +
                                           " from " + std::to_string(last_payload_end_)
                                     : std::string(" has a wrong checksum")));
      }
      if (record->end() > parts_[0].committed) break;
      last_payload_end_ = record->end();
      good += kIndexRecordSize;
    }
    size = good;
  }
  if (size == 0) return std::optional<Append>();
  Append append{part.committed, TakeFront(part, size)};
  return std::optional<Append>(std::move(append));
}

void PrimaryCopyCore::OnApplied(Part which) {
  PartState& part = parts_[static_cast<int>(which)];
  part.committed += part.appending;
  part.appending = 0;
}

bool PrimaryCopyCore::done() const {
  return sealed_ && parts_[0].committed >= seal_[0] && parts_[1].committed == seal_[1];
}

}  // namespace tailcast::writer
