#include "tailcast/rpc/beats.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"

namespace tailcast::rpc {
namespace {
// v1::Beat (proto/copy.proto): not empty, so that what a watcher does not take is counted.
constexpr std::string_view kBeat("\x08\x01", 2);
constexpr std::string_view kIdleBeat("\x08\x01\x10\x01", 4);

FAULT_POINT(kTimerKept, "rpc.timer_kept", "each beat leaves a timer behind");
}  // namespace

// --- the one that is watched

void BeatServer::Attach(Server& server, std::string_view method) {
  server.HandleStream(
      method, scope_.Bind([this](std::unique_ptr<Stream> stream) { OnStream(std::move(stream)); }));
}

void BeatServer::OnStream(std::unique_ptr<Stream> stream) {
  if (watchers_.size() >= kWatchersMax) {
    stream->SetCallbacks(
        {scope_.Bind([](const std::string&) {}), nullptr, scope_.Bind([](const Status&) {})});
    stream->Close(ResourceExhaustedError("more than " + std::to_string(kWatchersMax) +
                                         " processes watch this one"));
    return;
  }
  const uint64_t number = next_++;
  auto watcher = std::make_unique<Watcher>();
  watcher->stream = std::move(stream);
  const Scope& scope = watcher->callbacks;
  watcher->stream->SetCallbacks(
      {scope.Bind([](const std::string&) {}), nullptr, scope.Bind([this, number](const Status&) {
         auto node = watchers_.extract(number);
         Retire(loop_, std::move(node.mapped()));
       })});
  watcher->stream->Send(std::string(idle_ ? kIdleBeat : kBeat));
  watchers_[number] = std::move(watcher);
  if (!timer_.armed()) Beat();
}

void BeatServer::SetIdle(bool idle) {
  // Of becoming idle the next beat tells in its time.
  if (std::exchange(idle_, idle) && !idle) Beat();
}

void BeatServer::Beat() {
  for (const auto& [number, watcher] : watchers_) {
    // One beat says as much as many: a watcher that takes none gets none.
    if (watcher->stream->queued_bytes() == 0)
      watcher->stream->Send(std::string(idle_ ? kIdleBeat : kBeat));
  }
  if (watchers_.empty()) return timer_.Cancel();
  if (kTimerKept.planted()) loop_.After(Duration::Seconds(3600), scope_.Bind([] {}));
  const SilenceOptions options;
  timer_.After(idle_ ? options.idle_interval : options.interval, scope_.Bind([this] { Beat(); }));
}

// --- the one that watches

BeatWatch::BeatWatch(EventLoop& loop, Client& client, std::string method, BeatWatchOptions options,
                     Hooks hooks)
    : loop_(loop),
      client_(client),
      method_(std::move(method)),
      options_(options),
      hooks_(std::move(hooks)),
      clock_(options.silence.interval / 2),
      silence_(options.silence) {
  Connect();
  Tick();
}

void BeatWatch::Connect() {
  connection_.Restart();
  heard_ = false;
  connected_at_ = heard_at_ = clock_.At(loop_.Now());
  silence_.Restart();
  stream_ = client_.Open(method_);
  stream_->SetCallbacks(
      {connection_.Bind([this](const std::string& beat) { OnBeat(beat == kIdleBeat); }), nullptr,
       connection_.Bind([this](const Status& why) { OnClosed(why); })});
}

void BeatWatch::OnBeat(bool idle) {
  heard_at_ = clock_.At(loop_.Now());
  const Duration interval = silence_.interval();
  silence_.OnBeat(heard_at_, idle);
  if (silence_.interval() != interval) Tick();
  failures_ = 0;
  const bool news = silent_ || !heard_;
  heard_ = true;
  silent_ = false;
  if (news) hooks_.on_heard();
}

void BeatWatch::OnClosed(const Status& why) {
  const Duration delay =
      std::min(options_.retry * (int64_t{1} << std::min(failures_++, 10)), options_.retry_max);
  retry_timer_.After(delay, scope_.Bind([this] { Connect(); }));
  Silent("the connection to " + client_.address() + " broke: " + why.ToString());
}

void BeatWatch::Tick() {
  const MonotonicTime now = clock_.At(loop_.Now());
  clock_.SetTick(silence_.interval() / 2);
  tick_timer_.After(silence_.interval() / 2, scope_.Bind([this] { Tick(); }));
  if (silent_ && !retry_timer_.armed() && now - heard_at_ > options_.give_up) {
    Connect();
    return;
  }
  if (silent_ || !(heard_ ? now > silence_.limit() : now - connected_at_ > options_.first_beat)) {
    return;
  }
  // This turn may be late, and beats that came meanwhile wait behind it.
  loop_.Post(connection_.Bind([this] { Judge(); }));
}

void BeatWatch::Judge() {
  const MonotonicTime now = clock_.At(loop_.Now());
  if (heard_ && now > silence_.limit()) {
    return Silent(client_.address() + " has been silent for " +
                  std::to_string(silence_.limit_duration().millis()) + " ms");
  }
  if (!heard_ && now - connected_at_ > options_.first_beat) {
    Silent(client_.address() + " does not answer");
  }
}

void BeatWatch::ConnectNow() {
  if (!retry_timer_.armed()) return;
  retry_timer_.Cancel();
  Connect();
}

void BeatWatch::Silent(const std::string& why) {
  if (std::exchange(silent_, true)) return;
  hooks_.on_silent(UnavailableError(why));
}

}  // namespace tailcast::rpc
