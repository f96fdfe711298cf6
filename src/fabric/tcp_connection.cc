#include "tailcast/fabric/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_dialer.h"
#include "tailcast/fabric/word_copy.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
constexpr size_t kReceiveBytes = 64 << 10;
// Notifications, pongs and the welcome that wait for a reader which does not take them.
constexpr size_t kControlBytesMax = 256 << 10;
// Answer bytes for one connection before others get their turn: first about 50 us of the engine,
// then, in line, up to 150. What a consumer that is behind asks of one server fits in both, so that
// it need not be woken for each part. scale/cell_model.cc reckons with the second.
constexpr size_t kFirstTurnBytesMax = 128 << 10;
constexpr size_t kTurnBytesMax = 512 << 10;
// Bytes that the kernel keeps for a connection beyond what is under way to the reader. Without the
// bound who takes nothing could have it keep megabytes, and filling and freeing them takes the
// engine's time.
constexpr int kUnsentBytesMax = 128 << 10;
constexpr size_t kPartsPerSend = 1024;  // IOV_MAX
constexpr uint64_t kFramePayloadMax = 1 << 20;

char g_padding[8] = {};

}  // namespace

TcpDoor::Connection::Connection(TcpDoor* door, Descriptor fd, std::string peer)
    : door_(door), fd_(std::move(fd)), peer_(std::move(peer)), heard_(door->reactor_->Now()) {
  in_.resize(kReceiveBytes);
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax, sizeof(kUnsentBytesMax));
}

TcpDoor::Connection::~Connection() {
  for (const auto& [id, watch] : watches_) door_->RemoveWatcher(watch.key, watch.place);
  if (verbs_ticket_ != 0) door_->verbs_->Forget(verbs_ticket_);
  if (in_line_) std::erase(door_->line_, this);
  door_->reactor_->Remove(fd_.get());
  // Closing frees what the reader has not taken, megabytes maybe: other readers do not wait for it.
  Task close;
  {
    const Scope none;  // nothing is to be run
    close = none.Bind([fd = std::move(fd_)] {});
  }
  door_->doorman_.Post(std::move(close));
}

void TcpDoor::Connection::OnEvents(uint32_t events) {
  if (wants_out_ && (events & EPOLLRDHUP) != 0) {
    door_->Drop(fd_.get());
    return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !Receive()) return;
  Send();
}

void TcpDoor::Connection::QueueNotification(uint64_t id, WatchOutcome outcome) {
  watches_.erase(id);
  AppendTo(control_, TcpFrame{.body_bytes = 0,
                              .op = TcpOp::kNotify,
                              .flags = 0,
                              .count = static_cast<uint16_t>(outcome),
                              .argument = id});
}

bool TcpDoor::Connection::Fail(const std::string& why) {
  BadInput("tcp", "server").Add();
  if (const auto rest = door_->log_limit_.Admit(door_->reactor_->Now())) {
    kLog.Warn(door_->options_.name, ": closing the connection of ", peer_, ": ", why, *rest);
  }
  door_->Drop(fd_.get());
  return false;
}

bool TcpDoor::Connection::Receive() {
  const ssize_t n = recv(fd_.get(), in_.data() + in_used_, in_.size() - in_used_, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    door_->Drop(fd_.get());
    return false;
  }
  heard_ = door_->reactor_->Now();
  in_used_ += static_cast<size_t>(n);
  return TakeFrames();
}

bool TcpDoor::Connection::TakeFrames() {
  size_t used = 0;
  while (in_used_ - used >= sizeof(TcpFrame)) {
    const auto frame = TakeFrom<TcpFrame>(in_.data() + used);
    if (frame.body_bytes > kTcpRequestBodyMax || frame.flags != 0) {
      return Fail("a frame of " + std::to_string(frame.body_bytes) + " bytes, flags " +
                  std::to_string(frame.flags));
    }
    if (in_used_ - used < sizeof(frame) + frame.body_bytes) break;
    if (!TakeFrame(frame, in_.data() + used + sizeof(frame))) return false;
    used += sizeof(frame) + frame.body_bytes;
  }
  if (used > 0) std::memmove(in_.data(), in_.data() + used, in_used_ - used);
  in_used_ -= used;
  if (in_used_ == 0) {
    frame_since_ = MonotonicTime::Max();
  } else if (used > 0 || frame_since_ == MonotonicTime::Max()) {
    frame_since_ = heard_;
    door_->LookAfter();
  }
  return true;
}

bool TcpDoor::Connection::TakeFrame(const TcpFrame& frame, const char* body) {
  switch (frame.op) {
    case TcpOp::kRead:
      if (frame.count == 0 || frame.body_bytes != frame.count * sizeof(TcpRead)) {
        return Fail("a read request that does not add up");
      }
      if (!HasCreditFor(frame.count)) return false;
      for (size_t i = 0; i < frame.count; ++i) {
        reads_.push_back(TakeFrom<TcpRead>(body + i * sizeof(TcpRead)));
      }
      return true;
    case TcpOp::kScanAndRead:
      if (frame.count == 0 || frame.count > kTcpScansMax ||
          frame.body_bytes != frame.count * sizeof(TcpScan)) {
        return Fail("a scan that does not add up");
      }
      if (!door_->scanner_) return Fail("a scan, which was not offered");
      if (!HasCreditFor(frame.count)) return false;
      for (size_t i = 0; i < frame.count; ++i) {
        scans_.push_back(TakeFrom<TcpScan>(body + i * sizeof(TcpScan)));
      }
      return true;
    case TcpOp::kWatch:
      if (frame.body_bytes != sizeof(TcpWatch)) return Fail("a watch that does not add up");
      return TakeWatch(frame.argument, TakeFrom<TcpWatch>(body));
    case TcpOp::kCancelWatch: {
      if (frame.body_bytes != 0) return Fail("a cancelled watch that does not add up");
      const auto it = watches_.find(frame.argument);
      if (it == watches_.end()) return true;  // it was notified meanwhile
      door_->RemoveWatcher(it->second.key, it->second.place);
      watches_.erase(it);
      return true;
    }
    case TcpOp::kPing:
      if (frame.body_bytes != 0) return Fail("a ping that does not add up");
      AppendTo(control_, TcpFrame{.body_bytes = 0,
                                  .op = TcpOp::kPong,
                                  .flags = 0,
                                  .count = 0,
                                  .argument = frame.argument});
      if (control_.size() > kControlBytesMax)
        return Fail("it does not take its pongs and notifications");
      return true;
    case TcpOp::kVerbsAsk:
      if (frame.body_bytes != 0) return Fail("a question that does not add up");
      return TakeVerbsAsk();
    default:
      return Fail("an unknown request, number " + std::to_string(static_cast<int>(frame.op)));
  }
}

bool TcpDoor::Connection::HasCreditFor(size_t count) {
  if (reads_.size() + scans_.size() + count <= door_->options_.reads_max) return true;
  return Fail("more than " + std::to_string(door_->options_.reads_max) + " reads outstanding");
}

void TcpDoor::Connection::Welcome(TcpWelcome welcome) {
  const std::vector<RegionMemory::Region>& regions = door_->memory_->regions();
  AppendTo(control_, TcpFrame{.body_bytes = static_cast<uint32_t>(
                                  sizeof(welcome) + regions.size() * sizeof(TcpRegion)),
                              .op = TcpOp::kWelcome,
                              .flags = door_->scanner_ ? kTcpFlagScans : uint8_t{0},
                              .count = static_cast<uint16_t>(regions.size()),
                              .argument = kTcpMagic});
  AppendTo(control_, welcome);
  for (RegionId id = 0; id < regions.size(); ++id) {
    generations_.push_back(door_->memory_->generation(id));
    AppendTo(control_, TcpRegion{regions[id].size, generations_.back()});
  }
  Send();
}

bool TcpDoor::Connection::TakeWatch(uint64_t id, const TcpWatch& watch) {
  const std::vector<RegionMemory::Region>& regions = door_->memory_->regions();
  if (watch.region >= regions.size() || watch.offset % 8 != 0 ||
      watch.offset >= regions[watch.region].size) {
    return Fail("a watch outside of the regions");
  }
  if (watches_.contains(id)) return Fail("a watch id that is in use");
  if (watches_.size() >= door_->options_.watches_max) {
    QueueNotification(id, WatchOutcome::kRefused);
  } else {
    const WordKey key{watch.region, watch.offset};
    const WatcherPlace place = door_->AddWatcher(key, {this, id, watch.last_seen});
    watches_[id] = {key, place};
    // Counted before we look: either Notify sees the watch, or we see the change.
    if (door_->LoadWord(key) != watch.last_seen) {
      door_->RemoveWatcher(key, place);
      QueueNotification(id, WatchOutcome::kChanged);
    }
  }
  if (control_.size() > kControlBytesMax)
    return Fail("it does not take its pongs and notifications");
  return true;
}

// Here the reader is one that the hello let in.
bool TcpDoor::Connection::TakeVerbsAsk() {
  if (verbs_ticket_ != 0) return Fail("a second question for RDMA");
  VerbsOffers* const verbs = door_->verbs_;
  VerbsOffers::Made made;
  if (verbs == nullptr) {
    made = VerbsOffers::None("it has no RDMA door");
  } else {
    made = verbs->Offer();
  }
  verbs_ticket_ = made.ticket;
  if (verbs_ticket_ != 0) KeepAlive(fd_, door_->options_.peer_timeout);
  AppendTo(control_, TcpFrame{.body_bytes = static_cast<uint32_t>(made.body.size()),
                              .op = TcpOp::kVerbsOffer,
                              .flags = 0,
                              .count = static_cast<uint16_t>(made.regions),
                              .argument = 0});
  control_ += made.body;
  return true;
}

ReadStatus TcpDoor::Connection::Check(const Range& range, bool stopped) const {
  const std::vector<RegionMemory::Region>& regions = door_->memory_->regions();
  if (range.region >= regions.size()) return ReadStatus::kOutOfRange;
  const uint64_t size = regions[range.region].size;
  if (range.length > kReadBytesMax || range.offset > size || range.length > size - range.offset) {
    return ReadStatus::kOutOfRange;
  }
  if (door_->memory_->generation(range.region) != generations_[range.region]) {
    return ReadStatus::kStaleRegion;
  }
  return stopped ? ReadStatus::kUnreachable : ReadStatus::kOk;
}

ReadStatus TcpDoor::Connection::Check(const ScanPlan& plan, bool stopped) const {
  if (plan.count > kScanRangesMax) return ReadStatus::kOutOfRange;
  ReadStatus worst = Check(Range{}, stopped);  // of a plan without ranges, too
  for (uint32_t i = 0; i < plan.count; ++i) {
    const ReadStatus status = Check(plan.ranges[i], stopped);
    if (status == ReadStatus::kOutOfRange) return status;
    worst = std::max(worst, status);
  }
  return worst;
}

void TcpDoor::Connection::BuildAnswers() {
  const bool stopped = HeartbeatStopped(door_->memory_->control(), ReadMonotonicClock());
  frame_head_.assign(sizeof(TcpFrame), '\0');
  ranges_.clear();
  uint64_t payload = 0;
  size_t count = 0;
  while (count < reads_.size() && count < kTcpBatchMax && payload < kFramePayloadMax) {
    const TcpRead& read = reads_[count++];
    const Range range{.region = read.region, .length = read.length, .offset = read.offset};
    const ReadStatus status = Check(range, stopped);
    const uint32_t length = status == ReadStatus::kOk ? read.length : 0;
    AppendTo(frame_head_, TcpAnswer{read.tag, length, status, {}});
    if (length == 0) continue;
    ranges_.push_back(range);
    payload += length;
  }
  reads_.erase(reads_.begin(), reads_.begin() + static_cast<ptrdiff_t>(count));
  FinishFrame(TcpOp::kAnswer, count);
}

void TcpDoor::Connection::BuildScanned() {
  const bool stopped = HeartbeatStopped(door_->memory_->control(), ReadMonotonicClock());
  frame_head_.assign(sizeof(TcpFrame), '\0');
  ranges_.clear();
  uint64_t payload = 0;
  size_t count = 0;
  const size_t waiting = std::min<size_t>(scans_.size(), kTcpScansMax);
  const bool prefetch = waiting > 1 && door_->scan_prefetch_ != nullptr;
  for (int step = 0; prefetch && step < kScanPrefetchSteps; ++step) {
    for (size_t i = 0; i < waiting; ++i) {
      door_->scan_prefetch_(scans_[i].request, door_->views_, step);
    }
  }
  while (count < scans_.size() && count < kTcpScansMax && payload < kFramePayloadMax) {
    const TcpScan& scan = scans_[count++];
    const ScanPlan plan = door_->scanner_(scan.request, door_->views_);
    TcpScanned answer{
        .tag = scan.tag, .status = Check(plan, stopped), .ranges = 0, .reserved = {}, .parts = {}};
    if (answer.status == ReadStatus::kOk) {
      answer.ranges = static_cast<uint8_t>(plan.count);
      for (uint32_t i = 0; i < plan.count; ++i) {
        const Range& range = plan.ranges[i];
        answer.parts[i] = {.offset = range.offset, .length = range.length, .region = range.region};
        if (range.length == 0) continue;
        ranges_.push_back(range);
        payload += range.length;
      }
    }
    AppendTo(frame_head_, answer);
  }
  scans_.erase(scans_.begin(), scans_.begin() + static_cast<ptrdiff_t>(count));
  FinishFrame(TcpOp::kScanned, count);
}

void TcpDoor::Connection::FinishFrame(TcpOp op, size_t count) {
  uint64_t payload = 0;
  size_t inline_bytes = 0;
  for (const Range& range : ranges_) {
    payload += PaddedLength(range.length);
    if (range.length <= kTcpWordAtomicBytesMax) inline_bytes += PaddedLength(range.length);
  }
  const TcpFrame frame{.body_bytes = static_cast<uint32_t>(frame_head_.size() - sizeof(TcpFrame)),
                       .op = op,
                       .flags = 0,
                       .count = static_cast<uint16_t>(count),
                       .argument = payload};
  std::memcpy(frame_head_.data(), &frame, sizeof(frame));
  if (inline_.size() < inline_bytes) inline_.resize(inline_bytes);
  parts_.clear();
  part_ = 0;
  parts_.push_back({frame_head_.data(), frame_head_.size()});
  const auto add = [this](char* data, size_t length) {
    // Neighbours become one part: small reads side by side in inline_, chunks side by side.
    iovec& last = parts_.back();
    if (static_cast<char*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += length;
    } else {
      parts_.push_back({data, length});
    }
  };
  size_t inline_used = 0;
  for (const Range& range : ranges_) {
    char* region = door_->memory_->regions()[range.region].readable.data();
    const size_t padding = PaddedLength(range.length) - range.length;
    if (range.length <= kTcpWordAtomicBytesMax) {
      // Copied here, because the kernel may cut a message at any byte and take the rest later.
      char* const copy = inline_.data() + inline_used;
      CopyWords(copy, region, range.offset, range.length);
      std::memset(copy + range.length, 0, padding);
      add(copy, range.length + padding);
      inline_used += range.length + padding;
    } else {
      add(region + range.offset, range.length);
      if (padding != 0) parts_.push_back({g_padding, padding});
    }
  }
}

void TcpDoor::Connection::Send() {
  if (!in_line_) TakeTurn();
}

void TcpDoor::Connection::TakeTurn() {
  const size_t bytes_max = std::exchange(in_line_, false) ? kTurnBytesMax : kFirstTurnBytesMax;
  size_t turn_bytes = 0;
  bool blocked = false;
  while (!blocked && turn_bytes < bytes_max) {
    if (part_ == parts_.size() && !NextFrame()) break;
    const ssize_t n = SendParts(bytes_max - turn_bytes);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) {
        door_->Drop(fd_.get());
        return;
      }
      blocked = true;
      break;
    }
    turn_bytes += static_cast<size_t>(n);
    size_t left = static_cast<size_t>(n);
    while (left > 0 && left >= parts_[part_].iov_len) left -= parts_[part_++].iov_len;
    if (left > 0) {
      parts_[part_].iov_base = static_cast<char*>(parts_[part_].iov_base) + left;
      parts_[part_].iov_len -= left;
    }
  }
  if ((blocked && !wants_out_) || (wants_out_ && turn_bytes > 0)) {
    // Nothing is read of who does not take: what he does take shows that he is there.
    heard_ = taken_ = door_->reactor_->Now();
    if (frame_since_ != MonotonicTime::Max()) frame_since_ = heard_;
    door_->LookAfter();
  }
  if (!blocked) taken_ = MonotonicTime::Max();
  if (blocked != wants_out_) {
    wants_out_ = blocked;
    // Who does not take his answers is not asked for what else he wants.
    door_->reactor_->Modify(fd_.get(), blocked ? EPOLLOUT | EPOLLRDHUP : EPOLLIN);
  }
  const bool more =
      part_ < parts_.size() || !control_.empty() || !reads_.empty() || !scans_.empty();
  if (more && !blocked) {
    in_line_ = true;
    door_->StandInLine(this);
  }
}

bool TcpDoor::Connection::NextFrame() {
  parts_.clear();
  part_ = 0;
  if (!control_.empty()) {
    frame_head_.swap(control_);
    control_.clear();
    parts_.push_back({frame_head_.data(), frame_head_.size()});
  } else if (scans_.empty() && reads_.empty()) {
    return false;
  } else if (reads_.empty() || (scans_next_ && !scans_.empty())) {
    BuildScanned();
    scans_next_ = false;
  } else {
    BuildAnswers();
    scans_next_ = true;
  }
  return true;
}

ssize_t TcpDoor::Connection::SendParts(size_t bytes_max) {
  size_t end = part_, bytes = 0;
  while (end < parts_.size() && end - part_ < kPartsPerSend && bytes < bytes_max) {
    bytes += parts_[end++].iov_len;
  }
  const size_t beyond = bytes > bytes_max ? bytes - bytes_max : 0;  // of the last
  parts_[end - 1].iov_len -= beyond;
  const msghdr message{.msg_iov = parts_.data() + part_, .msg_iovlen = end - part_};
  const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  parts_[end - 1].iov_len += beyond;
  return n;
}

}  // namespace tailcast::fabric
