#include "tailcast/scheduler/room_watch.h"

#include <utility>

#include "tailcast/base/log.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");

}  // namespace

RoomWatch::RoomWatch(EventLoop& loop, storage::Store& store, MetricRegistry& metrics,
                     RoomWatchOptions options, std::function<Status()> no_room)
    : loop_(loop),
      store_(store),
      metrics_(metrics),
      options_(std::move(options)),
      no_room_(std::move(no_room)),
      timer_(loop) {}

void RoomWatch::Begin() { Look(); }

void RoomWatch::End() { scope_.End(); }

void RoomWatch::Look() {
  timer_.After(options_.interval, scope_.Bind([this] { Look(); }));
  const Status waits = no_room_();
  if (!waits.ok() && !waits_) {
    kLog.Error("cell ", options_.cell, ": nothing can be changed: ", waits.ToString(),
               "; tried again until there is room");
  } else if (waits.ok() && waits_) {
    kLog.Info("cell ", options_.cell, ": there is room for the registry again");
  }
  waits_ = !waits.ok();
  store_.Room(scope_.Bind([this](const Result<storage::StoreRoom>& room) { OnRoom(room); }));
}

void RoomWatch::OnRoom(const Result<storage::StoreRoom>& room) {
  const bool was_low = room_ && room_->low;
  room_.reset();
  if (!room.ok()) return;
  room_ = *room;
  if (room->low && !was_low) {
    kLog.Warn("cell ", options_.cell, ": the disk is full: ", room->text);
  } else if (was_low && !room->low) {
    kLog.Info("cell ", options_.cell, ": the disk has room again: ", room->text);
  }
  const auto set = [this](const char* name, const char* help, int64_t value) {
    metrics_.GetGauge(name, help).Set(value);
  };
  set("tailcast_scheduler_disk_free_bytes", "On the disk of the cell's primary layer.",
      room->free_bytes);
  set("tailcast_scheduler_disk_bytes", "The disk of the cell's primary layer holds so many.",
      room->total_bytes);
  set("tailcast_scheduler_disk_full", "1: messages find no room there, or soon will not.",
      room->low ? 1 : 0);
}

}  // namespace tailcast::scheduler
