// Looks at how much room the cell's primary layer has, for `tailcast status` and metrics, and says
// in the log when it runs out and when there is some again.
//
// Threads: everything on the store's loop.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/storage/store.h"

namespace tailcast::scheduler {

struct RoomWatchOptions {
  std::string cell;
  Duration interval = Duration::Seconds(2);
};

class RoomWatch {
 public:
  // `no_room`: why records of the cell wait for room; OK: none does. All outlive it.
  RoomWatch(EventLoop& loop, storage::Store& store, MetricRegistry& metrics,
            RoomWatchOptions options, std::function<Status()> no_room);
  RoomWatch(const RoomWatch&) = delete;
  RoomWatch& operator=(const RoomWatch&) = delete;

  void Begin();
  void End();
  // At the last look; nullopt: it is not known, or the driver does not know.
  const std::optional<storage::StoreRoom>& room() const { return room_; }

 private:
  void Look();
  void OnRoom(const Result<storage::StoreRoom>& room);

  EventLoop& loop_;
  storage::Store& store_;
  MetricRegistry& metrics_;
  const RoomWatchOptions options_;
  const std::function<Status()> no_room_;
  std::optional<storage::StoreRoom> room_;
  bool waits_ = false;  // records do, as the log says
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast::scheduler
