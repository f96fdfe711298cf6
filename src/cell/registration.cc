#include "tailcast/cell/registration.h"

#include <algorithm>
#include <utility>

namespace tailcast::cell {
namespace {

constexpr Duration kRetry = Duration::Millis(100);
constexpr Duration kRenewLeast = Duration::Millis(10);

}  // namespace

Registration::Registration(EventLoop& loop, CellClient& client, Hooks hooks)
    : loop_(loop), client_(client), hooks_(std::move(hooks)) {
  client_.SetOnChange(scope_.Bind([this](const CellView& view) { OnView(view); }));
  client_.SetOnSilence(scope_.Bind([this] { OnSilence(); }));
  Register();
}

void Registration::Register() {
  timer_.Cancel();
  calling_ = true;
  const MonotonicTime sent = loop_.Now();
  client_.Register(hooks_.info(), scope_.Bind([this, sent](const Result<v1::RegisterReply>& reply) {
    OnReply(sent, reply);
  }));
}

void Registration::RegisterNow() {
  if (calling_) {
    again_ = true;
  } else {
    Register();
  }
}

void Registration::OnReply(MonotonicTime sent, const Result<v1::RegisterReply>& reply) {
  calling_ = false;
  if (IsFailedPrecondition(reply.status()) || IsInvalidArgument(reply.status())) {
    return hooks_.on_refused(reply.status());
  }
  Duration next = kRetry;
  if (reply.ok()) {
    scheduler_ = reply->scheduler_incarnation();
    if (!IsOld()) next = std::max(Duration::Millis(reply->lease_ms()) / 3, kRenewLeast);
    hooks_.on_renewed(sent, *reply);
  }
  if (std::exchange(again_, false)) next = Duration();
  timer_.After(next, scope_.Bind([this] { Register(); }));
}

bool Registration::IsOld() const {
  return client_.has_view() && client_.view().scheduler_incarnation() > scheduler_;
}

// The next one may be there before it shows its view, and gives away what it has not heard of.
void Registration::OnSilence() {
  if (!timer_.armed() || timer_.when() <= loop_.Now() + kRetry) return;
  timer_.After(kRetry, scope_.Bind([this] { Register(); }));
}

void Registration::OnView(const CellView& view) {
  if (view.scheduler_incarnation() == scheduler_ || calling_ || !timer_.armed()) return;
  Register();
}

}  // namespace tailcast::cell
