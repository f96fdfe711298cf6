#include "tailcast/app/message_output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/app/command.h"
#include "tailcast/app/position_file.h"

namespace tailcast::app {
namespace {

// How much a pipe holds that nobody has read yet; 0 if standard output is no pipe.
int64_t PipeBytesMax() { return std::max(0, fcntl(STDOUT_FILENO, F_GETPIPE_SZ)); }
// How much it holds now.
int64_t PipeBytes() {
  int bytes = 0;
  return PipeBytesMax() > 0 && ioctl(STDOUT_FILENO, FIONREAD, &bytes) == 0 ? bytes : 0;
}

bool IsRegularFile() {
  struct stat info {};
  return fstat(STDOUT_FILENO, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

MessageOutput::MessageOutput(stream::Framing framing, std::optional<MessageFormat> format,
                             std::string position_file, const std::vector<stream::Position>& begin)
    : framing_(framing),
      format_(std::move(format)),
      position_file_(std::move(position_file)),
      regular_(IsRegularFile()),
      positions_(PipeBytesMax()) {
  for (const stream::Position& position : begin) begin_[position.shard] = position;
}

void MessageOutput::OnTaken(const consumer::Consumer& consumer, const consumer::Message& message) {
  positions_.OnTaken(consumer.PositionOf(message));
}

Status MessageOutput::Add(const consumer::Consumer& consumer, const consumer::Message& message) {
  const size_t before = out_.size();
  const Status added = format_ ? format_->AppendTo(consumer.stream().name, message,
                                                   consumer.PositionOf(message), out_)
                               : stream::AppendFrame(framing_, message.payload, out_);
  if (!added.ok()) {
    out_.resize(before);
    return added.WithContext("message " + std::to_string(message.number) + " of shard " +
                             std::to_string(message.shard));
  }
  if (!format_ && !message.headers.empty()) ++without_headers_;
  positions_.OnFrame(consumer.PositionBehind(message), static_cast<int64_t>(out_.size() - before));
  return OkStatus();
}

Result<MessageOutput::Written> MessageOutput::Flush() {
  const std::string bytes = std::exchange(out_, std::string());
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(STDOUT_FILENO, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) {
      if (Interrupted()) return Written::kInterrupted;
      continue;
    }
    if (n < 0 && errno == EPIPE) {
      reader_gone_ = true;
      return Written::kReaderGone;
    }
    if (n < 0) {
      return UnavailableError(std::string("can't write standard output: ") + std::strerror(errno));
    }
    at += static_cast<size_t>(n);
    positions_.OnWritten(n);
    if (at < bytes.size() && Interrupted()) return Written::kInterrupted;  // it had to wait
  }
  return Written::kAll;
}

std::vector<stream::Position> MessageOutput::Positions(const consumer::Consumer& consumer) const {
  // Who runs one after the other reads a pipe to its end, unless he went away. But of a file of
  // positions nobody knows when it will be read.
  const bool unread = reader_gone_ || !position_file_.empty();
  const auto behind = positions_.Behind(unread ? PipeBytes() : 0);
  std::vector<stream::Position> all;
  for (int32_t shard : consumer.shards()) {
    if (const auto it = behind.find(shard); it != behind.end()) {
      all.push_back(it->second);
    } else if (const auto position = consumer.position(shard)) {
      all.push_back(*position);
    } else if (const auto begin = begin_.find(shard); begin != begin_.end()) {
      all.push_back(begin->second);
    }
  }
  return all;
}

Status MessageOutput::SavePositions(const consumer::Consumer& consumer) {
  if (position_file_.empty()) return OkStatus();
  std::vector<stream::Position> positions = Positions(consumer);
  if (positions == saved_) return OkStatus();
  if (regular_ && fdatasync(STDOUT_FILENO) != 0) {
    return ErrnoStatus(errno, "make standard output durable");
  }
  TAILCAST_RETURN_IF_ERROR(
      WritePositionFile(position_file_, positions).WithContext("--position-file"));
  saved_ = std::move(positions);
  return OkStatus();
}

}  // namespace tailcast::app
