#include "tailcast/scheduler/catalogue_links.h"

#include <algorithm>
#include <utility>

#include "tailcast/base/fault_point.h"
#include "tailcast/base/log.h"
#include "tailcast/base/strong.h"

namespace tailcast::scheduler {
namespace {

const Logger kLog("scheduler");
constexpr size_t kToldMax = 1000;

FAULT_POINT(kNobodyAsked, "scheduler.nobody_asked",
            "a name is given without the other cells' word");

}  // namespace

CatalogueLinks::CatalogueLinks(
    EventLoop& loop, rpc::Connector& connector, const cell::Catalogue& catalogue,
    CatalogueLinksOptions options,
    std::function<void(const stream::StreamId&, const std::string& cell)> on_told)
    : loop_(loop),
      catalogue_(catalogue),
      options_(std::move(options)),
      on_told_(std::move(on_told)) {
  for (const Neighbour& neighbour : options_.neighbours) {
    links_.try_emplace(neighbour.cell, loop,
                       connector.MakeClient(neighbour.scheduler_address, neighbour.via));
  }
}

void CatalogueLinks::End() {
  scope_.End();
  reservations_.clear();
}

// --- names ---

void CatalogueLinks::Reserve(const std::string& stream, Callback<void(Status)> done) {
  std::vector<std::string> cells;
  for (const auto& [cell, link] : links_) cells.push_back(cell);
  if (cells.empty() || kNobodyAsked.planted()) {
    return loop_.Post(std::move(done).With(OkStatus()));
  }
  const Place reservation = reservations_.emplace(reservations_.end(), stream, cells,
                                                  loop_.Now() + options_.reserve_timeout);
  reservation->request.set_name(stream);
  reservation->request.set_claimant(options_.cell);
  reservation->done = std::move(done);
  for (const std::string& cell : cells) Ask(reservation, cell);
}

void CatalogueLinks::Ask(Place reservation, const std::string& cell) {
  links_.at(cell).client->Call(
      "/tailcast.v1.Peer/AskName", reservation->request.SerializeAsString(), options_.call_timeout,
      reservation->scope.Bind([this, reservation, cell](const Result<std::string>& reply) {
        OnAnswer(reservation, cell, reply.status());
      }));
}

void CatalogueLinks::OnAnswer(Place reservation, const std::string& cell, const Status& answer) {
  if (reservation->core.OnAnswer(loop_.Now(), cell, answer)) {
    reservation->again.try_emplace(cell, loop_)
        .first->second.After(options_.retry, reservation->scope.Bind([this, reservation, cell] {
          Ask(reservation, cell);
        }));
    return;
  }
  if (!reservation->core.done()) return;
  auto done = std::move(reservation->done);
  Status outcome = reservation->core.outcome();
  reservations_.erase(reservation);
  done(std::move(outcome));
}

// --- deletions ---

// A cell that left the topology has no link: it is told if it comes back.
void CatalogueLinks::Tell(const stream::StreamId& id) {
  const auto deleted = catalogue_.deleted().find(id);
  if (deleted == catalogue_.deleted().end()) return;
  for (const std::string& cell : deleted->second.cells_to_tell()) {
    const auto link = links_.find(cell);
    if (link == links_.end() || link->second.told.contains(id)) continue;
    link->second.to_tell.insert(id);
    TellNext(cell, link->second);
  }
}

void CatalogueLinks::TellNext(const std::string& cell, Link& link) {
  if (link.telling || link.retry.armed()) return;
  while (!link.to_tell.empty()) {
    const auto next =
        link.round_at ? link.to_tell.upper_bound(*link.round_at) : link.to_tell.begin();
    if (next == link.to_tell.end()) {  // what is left was refused, or came behind those
      link.round_at.reset();
      return TellLater(cell, link);
    }
    const stream::StreamId id{next->name, next->incarnation};  // a copy: it may be erased
    const auto known = catalogue_.deleted().find(id);
    if (known == catalogue_.deleted().end()) {
      link.to_tell.erase(id);
      link.refused.erase(id);
      continue;
    }
    const v1::DeletedStream& deleted = known->second;
    v1::RemoveStreamRequest request;
    request.set_name(deleted.name());
    request.set_incarnation(deleted.incarnation());
    request.set_shards(deleted.shards());
    link.telling = true;
    link.client->Call("/tailcast.v1.Peer/RemoveStream", request.SerializeAsString(),
                      options_.call_timeout,
                      scope_.Bind([this, cell, &link, id](const Result<std::string>& reply) {
                        OnTold(cell, link, id, reply.status());
                      }));
    return;
  }
}

void CatalogueLinks::OnTold(const std::string& cell, Link& link, const stream::StreamId& deleted,
                            const Status& status) {
  link.telling = false;
  // The cell's state, and not this deletion's: without room it takes no other, either.
  if (IsUnavailable(status) || status.code() == StatusCode::kDeadlineExceeded ||
      status.code() == StatusCode::kResourceExhausted) {
    return TellLater(cell, link);
  }
  if (!status.ok()) {
    if (link.refused.insert(deleted).second) {
      kLog.Error("cell ", cell, " does not take the deletion of stream ", deleted.name, ": ",
                 status.message(), "; it is told again and again");
    }
    link.round_at = deleted;
    return TellNext(cell, link);
  }
  link.to_tell.erase(deleted);
  link.refused.erase(deleted);
  // Not again while that is being written.
  if (link.told.size() > kToldMax) link.told.clear();
  link.told.insert(deleted);
  on_told_(deleted, cell);
  TellNext(cell, link);
}

void CatalogueLinks::TellLater(const std::string& cell, Link& link) {
  link.retry.After(options_.retry, scope_.Bind([this, cell, &link] { TellNext(cell, link); }));
}

}  // namespace tailcast::scheduler
