#include "tailcast/stream/framing.h"

namespace tailcast::stream {
namespace {

uint32_t ReadLength(const char* p) {
  uint32_t length = 0;
  for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(p[i]);
  return length;
}

}  // namespace

Result<Framing> ParseFraming(std::string_view text) {
  if (text == "lines") return Framing::kLines;
  if (text == "length") return Framing::kLength;
  return InvalidArgumentError("unknown framing '" + std::string(text.substr(0, 40)) +
                              "': use lines (each line is a message) or length (4-byte big-endian "
                              "length, then the payload)");
}

void FrameSplitter::Push(std::string_view bytes) {
  if (at_ > 0) {
    input_byte_ += static_cast<int64_t>(at_);
    searched_ -= at_;
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_.append(bytes);
}

std::optional<std::string_view> FrameSplitter::Next() {
  if (!status_.ok()) return std::nullopt;
  const auto too_large = [&](int64_t size, bool whole) {
    status_ = ResourceExhaustedError("message " + std::to_string(messages_) +
                                     ", which begins at input byte " +
                                     std::to_string(input_byte_ + static_cast<int64_t>(at_)) +
                                     ", has " + (whole ? "" : "more than ") + std::to_string(size) +
                                     " bytes; the limit is " + std::to_string(message_bytes_max_));
  };
  const size_t available = buffer_.size() - at_;
  if (framing_ == Framing::kLines) {
    if (searched_ < at_) searched_ = at_;
    const size_t newline = buffer_.find('\n', searched_);
    size_t length = 0;
    if (newline != std::string::npos) {
      length = newline + 1 - at_;
    } else {
      searched_ = buffer_.size();
      if (static_cast<int64_t>(available) > message_bytes_max_) {
        too_large(message_bytes_max_, false);
        return std::nullopt;
      }
      if (!finished_ || available == 0) return std::nullopt;
      length = available;
    }
    if (static_cast<int64_t>(length) > message_bytes_max_) {
      too_large(static_cast<int64_t>(length), true);
      return std::nullopt;
    }
    const std::string_view message(buffer_.data() + at_, length);
    at_ += length;
    searched_ = at_;
    ++messages_;
    return message;
  }
  if (available < 4) return std::nullopt;
  const uint32_t length = ReadLength(buffer_.data() + at_);
  if (length > message_bytes_max_) {
    too_large(length, true);
    return std::nullopt;
  }
  if (available < 4 + static_cast<size_t>(length)) return std::nullopt;
  const std::string_view message(buffer_.data() + at_ + 4, length);
  at_ += 4 + static_cast<size_t>(length);
  searched_ = at_;
  ++messages_;
  return message;
}

Status FrameSplitter::Finish() {
  finished_ = true;
  if (framing_ == Framing::kLines || !status_.ok()) return status_;
  // Whole messages may still wait for Next: look behind them.
  size_t at = at_;
  while (buffer_.size() - at >= 4) {
    const uint32_t length = ReadLength(buffer_.data() + at);
    if (length > message_bytes_max_) return OkStatus();  // Next reports it
    if (buffer_.size() - at < 4 + static_cast<size_t>(length)) break;
    at += 4 + static_cast<size_t>(length);
  }
  if (at == buffer_.size()) return OkStatus();
  return DataLossError("the input ends inside a message that begins at input byte " +
                       std::to_string(input_byte_ + static_cast<int64_t>(at)) + " (" +
                       std::to_string(buffer_.size() - at) +
                       " bytes of it and its 4-byte length are there)");
}

Status AppendFrame(Framing framing, std::string_view payload, std::string& out) {
  if (framing == Framing::kLength) {
    if (payload.size() > UINT32_MAX) {
      return InvalidArgumentError("a payload of " + std::to_string(payload.size()) +
                                  " bytes does not fit length framing");
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(static_cast<char>(payload.size() >> shift));
    }
  }
  out.append(payload);
  return OkStatus();
}

}  // namespace tailcast::stream
