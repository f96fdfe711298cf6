// Looks at how much room the cell's primary layer has, for `tailcast status` and metrics, and says
// in the log when it runs out and when there is some again. One look at a time: a disk that hangs
// answers none of them, and then it says since when nothing is seen.
//
// Threads: everything on the store's loop.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/store.h"

namespace tailcast::scheduler {

struct RoomWatchOptions {
  std::string cell;
  Duration interval = Duration::Seconds(2);
};

class RoomWatch {
 public:
  // As storage::Store::Room.
  using LookAtRoom = std::function<void(Callback<void(Result<storage::StoreRoom>)>)>;
  // That it can't look.
  struct Unseen {
    Duration since;
    std::string why;
  };

  // `no_room`: why records of the cell wait for room; OK: none does. All outlive it.
  RoomWatch(EventLoop& loop, MetricRegistry& metrics, RoomWatchOptions options, LookAtRoom look,
            std::function<Status()> no_room);
  RoomWatch(const RoomWatch&) = delete;
  RoomWatch& operator=(const RoomWatch&) = delete;

  void Begin();
  void End();
  // At the last look that showed it; nullopt: there was none, or the driver does not know.
  const std::optional<storage::StoreRoom>& room() const { return room_; }
  // nullopt: it can, or the driver does not know.
  std::optional<Unseen> unseen() const;

 private:
  void Tick();
  void SayWhatWaits();
  void Look();
  void OnRoom(const Result<storage::StoreRoom>& room);

  EventLoop& loop_;
  MetricRegistry& metrics_;
  const RoomWatchOptions options_;
  const LookAtRoom look_;
  const std::function<Status()> no_room_;
  std::optional<storage::StoreRoom> room_;
  bool waits_ = false;       // records do, as the log says
  bool looking_ = false;     // a look is under way
  bool is_unseen_ = false;   // as the log says
  bool knows_none_ = false;  // the driver
  MonotonicTime seen_at_;    // or begun
  Status failed_;            // the last look
  Timer timer_;
  Scope scope_;
};

}  // namespace tailcast::scheduler
