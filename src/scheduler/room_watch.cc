#include "tailcast/scheduler/room_watch.h"

#include <utility>

#include "tailcast/base/log.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
// So many in a row are no hiccup.
constexpr int64_t kLooksMissed = 3;

}  // namespace

RoomWatch::RoomWatch(EventLoop& loop, MetricRegistry& metrics, RoomWatchOptions options,
                     LookAtRoom look, std::function<Status()> no_room)
    : loop_(loop),
      metrics_(metrics),
      options_(std::move(options)),
      look_(std::move(look)),
      no_room_(std::move(no_room)),
      timer_(loop) {}

void RoomWatch::Begin() {
  seen_at_ = loop_.Now();
  Tick();
}

void RoomWatch::End() { scope_.End(); }

std::optional<RoomWatch::Unseen> RoomWatch::unseen() const {
  const Duration since = loop_.Now() - seen_at_;
  if (knows_none_ || since <= options_.interval * kLooksMissed) return std::nullopt;
  return Unseen{since, failed_.ok() ? "it does not answer" : failed_.message()};
}

void RoomWatch::Tick() {
  timer_.After(options_.interval, scope_.Bind([this] { Tick(); }));
  SayWhatWaits();
  const std::optional<Unseen> unseen = this->unseen();
  if (unseen && !is_unseen_) {
    kLog.Error("cell ", options_.cell, ": the disk can't be looked at: ", unseen->why);
  } else if (!unseen && is_unseen_) {
    kLog.Info("cell ", options_.cell, ": the disk can be looked at again");
  }
  is_unseen_ = unseen.has_value();
  metrics_
      .GetGauge("tailcast_scheduler_disk_unseen_seconds",
                "For how long the disk of the cell's primary layer can't be looked at; what is "
                "said of it is from before. 0: it can.")
      .Set(unseen ? (unseen->since.millis() + 999) / 1000 : 0);
  if (!looking_) Look();
}

void RoomWatch::SayWhatWaits() {
  const Status waits = no_room_();
  if (!waits.ok() && !waits_) {
    kLog.Error("cell ", options_.cell, ": nothing can be changed: ", waits.ToString(),
               "; tried again until there is room");
  } else if (waits.ok() && waits_) {
    kLog.Info("cell ", options_.cell, ": there is room for the registry again");
  }
  waits_ = !waits.ok();
}

void RoomWatch::Look() {
  looking_ = true;
  look_(scope_.Bind([this](const Result<storage::StoreRoom>& room) {
    looking_ = false;
    OnRoom(room);
  }));
}

void RoomWatch::OnRoom(const Result<storage::StoreRoom>& room) {
  knows_none_ = room.status().code() == StatusCode::kUnimplemented;
  failed_ = room.status();
  if (!room.ok()) return;
  const bool was_low = room_ && room_->low;
  room_ = *room;
  seen_at_ = loop_.Now();
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
