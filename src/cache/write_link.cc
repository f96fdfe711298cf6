#include "tailcast/cache/write_link.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"
#include "tailcast/cache/wire.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/proto/cache.pb.h"

namespace tailcast::cache {
namespace {

const Logger kLog("cache");

}  // namespace

WriteLink::WriteLink(ClientContext& context, fabric::Connector& fabric, rpc::Client* rpc,
                     const Replica& replica)
    : context_(context),
      fabric_(fabric),
      rpc_(rpc),
      addresses_(replica.fabric_addresses),
      silence_(context.loop) {}

WriteLink::~WriteLink() = default;

uint64_t WriteLink::Write(MutateMessage* message, MonotonicTime deadline, Done done) {
  if (state_ == State::kOpen && !way_.passed_over.empty()) LookForBetter();
  const uint64_t write = next_write_++;
  pending_[write] = {.message = message, .deadline = deadline, .done = std::move(done)};
  bytes_ += message->bytes();
  if (state_ == State::kClosed) {
    if (addresses_.empty() || !health_.Usable(context_.loop.Now())) {
      Call(write);
      return write;
    }
    Open();
  }
  waiting_.push_back(write);
  if (state_ == State::kOpen && waiting_.size() == 1) SendWaiting();
  return write;
}

void WriteLink::Cancel(uint64_t write) {
  const auto it = pending_.find(write);
  if (it == pending_.end()) return;
  if (!it->second.sent) {
    const auto place =
        std::find(waiting_.begin(), waiting_.end(), write);  // nearly always the first
    if (place != waiting_.end()) waiting_.erase(place);
  }
  const bool sent = it->second.sent;
  const MonotonicTime sent_at = it->second.sent_at;
  bytes_ -= it->second.message->bytes();
  pending_.erase(it);
  if (sent && state_ == State::kOpen) OnSilence(sent_at);
}

void WriteLink::OnSilence(MonotonicTime sent) {
  if (!silent_since_.has_value()) silent_since_ = sent;
  if (context_.loop.Now() - *silent_since_ < kSilenceMax || silence_.armed()) return;
  // On a later turn: if it is this process that did not run, the answers are there.
  silence_.After(Duration::Millis(2), scope_.Bind([this] {
    if (!silent_since_.has_value()) return;
    ++context_.counters.channel_silent;
    OnBroken();
  }));
}

void WriteLink::Open() {
  state_ = State::kOpening;
  fabric::OpenBestChannel(
      &fabric_, addresses_, "", context_.options.connect_timeout,
      scope_.Bind([this](Result<fabric::BestChannel> best) { OnOpened(std::move(best)); }));
}

void WriteLink::OnOpened(Result<fabric::BestChannel> best) {
  if (!best.ok()) {
    kLog.Debug("no channel to a replica: ", best.status());
    ++context_.counters.channel_failed;
    state_ = State::kClosed;
    health_.OnFailure(context_.loop.Now(), context_.loop.Now());
    for (const uint64_t write : std::exchange(waiting_, {})) Call(write);
    return;
  }
  state_ = State::kOpen;
  SetCallbacks(best->channel.get());
  Adopt(std::move(best).value());
  SendWaiting();
}

void WriteLink::SetCallbacks(fabric::Channel* channel) {
  channel->SetCallbacks({.on_answer = scope_.Bind([this](uint64_t write, std::string_view answer) {
                           OnAnswer(write, answer);
                         }),
                         .on_broken = scope_.Bind([this, channel] {
                           if (channel != channel_.get()) return better_.reset();
                           ++context_.counters.channel_broken;
                           OnBroken();
                         })});
}

void WriteLink::Adopt(fabric::BestChannel best) {
  channel_ = std::move(best.channel);
  way_ = std::move(best.way);
  look_better_at_ = context_.loop.Now() + context_.options.better_address_interval;
}

void WriteLink::LookForBetter() {
  if (better_.has_value()) {
    if (!pending_.empty()) return;
    kLog.Info("writes to a replica: from ", way_.address, " up to ", better_->way.address);
    ++context_.counters.channel_moved_up;
    fabric::BestChannel better = std::move(*better_);
    better_.reset();
    return Adopt(std::move(better));
  }
  if (context_.loop.Now() < look_better_at_) return;
  look_better_at_ = context_.loop.Now() + context_.options.better_address_interval;
  const std::vector<std::string> better = fabric::BetterAddresses(addresses_, "", way_.address);
  if (better.empty()) return;
  fabric::OpenBestChannel(&fabric_, better, "", context_.options.connect_timeout,
                          scope_.Bind([this](Result<fabric::BestChannel> best) {
                            if (!best.ok() || state_ != State::kOpen) return;
                            SetCallbacks(best->channel.get());
                            better_ = std::move(best).value();
                          }));
}

void WriteLink::SendWaiting() {
  while (!waiting_.empty()) {
    Pending& pending = pending_.at(waiting_.front());
    if (!channel_->Send(pending.message->Parts(), waiting_.front())) return;
    pending.sent = true;
    pending.sent_at = context_.loop.Now();
    ++context_.counters.write_messages;
    waiting_.pop_front();
  }
}

void WriteLink::OnAnswer(uint64_t write, std::string_view bytes) {
  health_.OnSuccess();
  silent_since_.reset();
  if (!waiting_.empty()) SendWaiting();  // there is a credit
  const std::optional<MutateAnswer> answer = ParseAnswer(bytes);
  Finish(write,
         answer.has_value() ? Outcome{Failure::kNone, *answer} : Outcome{Failure::kBadReply, {}});
}

void WriteLink::OnBroken() {
  state_ = State::kClosed;
  silence_.Cancel();
  silent_since_.reset();
  channel_.reset();
  better_.reset();
  health_.OnFailure(context_.loop.Now(), context_.loop.Now());
  std::vector<uint64_t> unknown;
  for (const auto& [write, pending] : pending_) {
    if (pending.sent) unknown.push_back(write);
  }
  const Scope::Watcher self = scope_.Watch();
  for (const uint64_t write : unknown) {
    Finish(write, {Failure::kChannelBroken, {}});
    if (self.ended()) return;
  }
  for (const uint64_t write : std::exchange(waiting_, {})) Call(write);
}

void WriteLink::Call(uint64_t write) {
  const auto it = pending_.find(write);
  if (it == pending_.end()) return;  // cancelled
  if (rpc_ == nullptr) {
    context_.loop.Post(scope_.Bind([this, write] { Finish(write, {Failure::kNoAddress, {}}); }));
    return;
  }
  const MutateMessage& message = *it->second.message;
  v1::CacheMutateRequest request;
  for (size_t i = 0; i < message.size(); ++i) {
    const MutateMessage::Entry entry = message.entry(i);
    wire::Append(*request.mutable_batch(), entry.key, entry.rule, entry.erase, entry.value);
  }
  request.set_configuration_id(Raw(message.context().configuration));
  request.set_epoch(Raw(message.context().epoch));
  request.set_incarnation(Raw(message.context().incarnation));
  ++context_.counters.write_calls;
  const Duration timeout = std::max(it->second.deadline - context_.loop.Now(), Duration::Millis(1));
  rpc_->Call("/" + context_.options.service + "/Mutate", request.SerializeAsString(), timeout,
             scope_.Bind([this, write](Result<std::string> reply) { OnReply(write, reply); }));
}

void WriteLink::OnReply(uint64_t write, const Result<std::string>& bytes) {
  if (!bytes.ok()) {
    switch (CallFailureOf(bytes.status())) {
      case CallFailure::kTimeout:
        return Finish(write, {Failure::kTimeout, {}});
      case CallFailure::kOtherIncarnation:
        return Finish(write, {Failure::kNone, {.status = MutateStatus::kOtherIncarnation}});
      case CallFailure::kNotServing:
        return Finish(write, {Failure::kNone, {.status = MutateStatus::kNotServing}});
      case CallFailure::kUnreachable:
        return Finish(write, {Failure::kUnreachable, {}});
      case CallFailure::kOldRing:  // is an answer of its own
      case CallFailure::kBadReply:
        return Finish(write, {Failure::kBadReply, {}});
    }
  }
  v1::CacheMutateReply reply;
  if (!reply.ParseFromString(*bytes)) return Finish(write, {Failure::kBadReply, {}});
  Finish(write, {Failure::kNone,
                 {reply.results().empty() ? MutateStatus::kOldRing : MutateStatus::kDone,
                  ConfigurationId{reply.configuration_id()}, reply.results()}});
}

void WriteLink::Finish(uint64_t write, const Outcome& outcome) {
  auto node = pending_.extract(write);
  if (!node) return;  // cancelled
  bytes_ -= node.mapped().message->bytes();
  node.mapped().done(outcome);
}

}  // namespace tailcast::cache
