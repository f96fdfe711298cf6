#include "tailcast/producer/notifier.h"

#include <iterator>
#include <utility>

#include "tailcast/producer/retry_core.h"

namespace tailcast::producer {

void Notifier::Notify(FileEvent event) {
  if (!hook_) return;
  notices_.emplace_back(loop_, std::move(event));
  Tell(std::prev(notices_.end()));
}

void Notifier::Tell(Place notice) {
  notice->scope.Restart();
  hook_(notice->event,
        notice->scope.Bind([this, notice](Status status) { OnTold(notice, status); }));
}

void Notifier::OnTold(Place notice, const Status& status) {
  if (!status.ok()) {
    ++failures_;
    const auto wait = NotifyRetryWait(++notice->failures);
    if (wait && !stopped_) {
      notice->scope.Restart();
      notice->retry.After(*wait, notice->scope.Bind([this, notice] { Tell(notice); }));
      return;
    }
  }
  notices_.erase(notice);
  if (notices_.empty()) on_idle_();
}

}  // namespace tailcast::producer
