#include "tailcast/storage/slow_calls.h"

#include <optional>
#include <utility>

#include "tailcast/base/log.h"

namespace tailcast::storage {
namespace {

const Logger kLog("storage");

}  // namespace

SlowCalls::SlowCalls(EventLoop* loop, std::string store, SlowRequestsCore::Options options,
                     UniqueFunction<void()> look)
    : loop_(loop), core_(std::move(store), options), look_(std::move(look)), timer_(*loop) {}

void SlowCalls::Begin(uint64_t call, MonotonicTime deadline, std::string what, GiveUp give_up) {
  core_.OnSent(loop_->Now(), call, deadline, std::move(what));
  calls_.emplace(call, std::move(give_up));
  SetTimer();
}

void SlowCalls::OnAnswered(uint64_t call) {
  calls_.erase(call);
  SlowRequestsCore::Effects effects;
  core_.OnAnswered(loop_->Now(), call, effects);
  Carry(effects);
}

void SlowCalls::OnSilence(uint64_t call) {
  calls_.erase(call);
  core_.OnSilence(call);
}

bool SlowCalls::OnCause(std::string cause) {
  SlowRequestsCore::Effects effects;
  core_.OnCause(loop_->Now(), std::move(cause), effects);
  Carry(effects);
  return effects.replace;
}

void SlowCalls::OnTime() {
  SlowRequestsCore::Effects effects;
  core_.OnTime(loop_->Now(), effects);
  SetTimer();
  Carry(effects);
  const Scope::Watcher self = scope_.Watch();
  for (const uint64_t call : effects.given_up) {
    if (self.ended()) return;
    const auto given_up = calls_.extract(call);
    if (!given_up.empty()) given_up.mapped()(std::string(core_.cause()));
  }
}

void SlowCalls::Carry(const SlowRequestsCore::Effects& effects) {
  if (!effects.warn.empty()) kLog.Warn(effects.warn);
  if (!effects.inform.empty()) kLog.Info(effects.inform);
  if (effects.look) look_();
}

void SlowCalls::SetTimer() {
  const std::optional<MonotonicTime> next = core_.next();
  if (!next.has_value() || (timer_.armed() && timer_.when() <= *next)) return;
  timer_.At(*next, scope_.Bind([this] { OnTime(); }));
}

}  // namespace tailcast::storage
