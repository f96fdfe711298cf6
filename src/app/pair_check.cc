#include "tailcast/app/pair_check.h"

#include <limits>

#include "tailcast/base/crc32c.h"

namespace tailcast::app {

using stream::IndexRecord;
using stream::kIndexRecordSize;

PairCheck::PairCheck(const std::optional<stream::Seal>& seal, std::string_view index) {
  const auto there = static_cast<int64_t>(index.size());
  int64_t length = seal ? seal->length[static_cast<int>(stream::Part::kIndex)] : there;
  const int64_t data_length = seal ? seal->length[static_cast<int>(stream::Part::kData)]
                                   : std::numeric_limits<int64_t>::max();
  if (there < length) {
    missing_ = "its index has " + std::to_string(there) + " bytes of " + std::to_string(length);
    length = there;
  }
  for (int64_t at = 0; at + kIndexRecordSize <= length; at += kIndexRecordSize) {
    const auto record = IndexRecord::Decode(index.data() + at);
    if (!record || record->end() > data_length ||
        (!records_.empty() && record->offset < records_.back().end())) {
      damage_ = "the index record of message " + std::to_string(at / kIndexRecordSize) +
                " fails its check sum";
      return;
    }
    records_.push_back(*record);
  }
}

void PairCheck::OnData(std::string_view bytes) {
  data_.append(bytes);
  size_t used = 0;
  while (!done()) {
    const IndexRecord& record = records_[next_];
    const auto from = static_cast<size_t>(record.offset - data_at_);
    if (from + record.length > data_.size()) break;
    if (Crc32c(std::string_view(data_).substr(from, record.length)) != record.crc) {
      damage_ = "the payload of message " + std::to_string(next_) + " fails its check sum";
      return;
    }
    used = from + record.length;
    ++next_;
  }
  data_.erase(0, used);
  data_at_ += static_cast<int64_t>(used);
}

void PairCheck::OnEnd() {
  if (done() || !missing_.empty()) return;
  missing_ = "its data ends before message " + std::to_string(next_);
}

}  // namespace tailcast::app
