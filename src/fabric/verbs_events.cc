#include "tailcast/fabric/verbs_events.h"

#include <sys/epoll.h>

#include <map>
#include <mutex>
#include <utility>

namespace tailcast::fabric {
namespace {

struct Table {
  std::mutex mutex;
  std::map<const ibv_srq*, UniqueFunction<void()>> low;  // guarded
};
Table& AllQueues() {
  static Table& table = *new Table;
  return table;
}

}  // namespace

Status VerbsEvents::Start() {
  SetNonBlocking(device_->async_fd);
  return reactor_->Add(device_->async_fd, EPOLLIN, this);
}

void VerbsEvents::Stop() { reactor_->Remove(device_->async_fd); }

void VerbsEvents::Watch(const ibv_srq* queue, UniqueFunction<void()> low) {
  Table& table = AllQueues();
  std::lock_guard lock(table.mutex);
  table.low[queue] = std::move(low);
}

void VerbsEvents::Forget(const ibv_srq* queue) {
  Table& table = AllQueues();
  std::lock_guard lock(table.mutex);
  table.low.erase(queue);
}

void VerbsEvents::OnEvents(uint32_t) {
  ibv_async_event event{};
  while (ibv_get_async_event(device_, &event) == 0) {
    const ibv_srq* const queue =
        event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED ? event.element.srq : nullptr;
    ibv_ack_async_event(&event);  // at once: who destroys the queue waits for it
    if (queue == nullptr) continue;
    Table& table = AllQueues();
    std::lock_guard lock(table.mutex);
    if (const auto it = table.low.find(queue); it != table.low.end()) it->second();
  }
}

}  // namespace tailcast::fabric
