// The source's calls to all other cells for the catalogue (cell/catalogue.h): whether they agree to
// a new name, and which streams are deleted, until each has recorded it.
//
//   AskName, RemoveStream ---> | scheduler | of every other cell
//
// Threads: everything on one loop.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tailcast/base/scope.h"
#include "tailcast/cell/catalogue.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/scheduler/peer_links.h"
#include "tailcast/scheduler/reservation_core.h"
#include "tailcast/stream/names.h"

namespace tailcast::scheduler {

struct CatalogueLinksOptions {
  std::string cell;                   // this one
  std::vector<Neighbour> neighbours;  // all others
  Duration call_timeout = Duration::Seconds(1);
  Duration retry = Duration::Millis(200);
  // A cell that has not agreed to a name by then refuses it. Less than what a client waits.
  Duration reserve_timeout = Duration::Seconds(3);
};

class CatalogueLinks {
 public:
  // All outlive it. `on_told`: a cell has recorded a deletion.
  CatalogueLinks(EventLoop& loop, rpc::Connector& connector, const cell::Catalogue& catalogue,
                 CatalogueLinksOptions options,
                 std::function<void(const stream::StreamId&, const std::string& cell)> on_told);
  CatalogueLinks(const CatalogueLinks&) = delete;
  CatalogueLinks& operator=(const CatalogueLinks&) = delete;

  // Whether all other cells agree that this one gives the name to a stream, which it has reserved
  // durably. Errors as ReservationCore::outcome.
  void Reserve(const std::string& stream, Callback<void(Status)> done);
  // Tells the cells of the deletion, which is durable, that have not recorded it; each cell of one
  // at a time. One that a cell refuses is told again after the others.
  void Tell(const stream::StreamId& deleted);
  // Drops everything that is under way.
  void End();

 private:
  struct Reservation {
    Reservation(std::string stream, const std::vector<std::string>& cells, MonotonicTime deadline)
        : core(std::move(stream), cells, deadline) {}
    v1::AskNameRequest request;
    ReservationCore core;
    Callback<void(Status)> done;
    std::map<std::string, Timer> again;  // by cell
    Scope scope;
  };
  struct Link {
    Link(EventLoop& loop, std::unique_ptr<rpc::Client> connection)
        : client(std::move(connection)), retry(loop) {}
    const std::unique_ptr<rpc::Client> client;
    bool telling = false;
    std::set<stream::StreamId> to_tell;
    std::set<stream::StreamId> told;     // a while ago, at least
    std::set<stream::StreamId> refused;  // some of to_tell; and that was said
    // In this round all up to here were told or refused.
    std::optional<stream::StreamId> round_at;
    Timer retry;
  };
  using Place = std::list<Reservation>::iterator;

  void Ask(Place reservation, const std::string& cell);
  void OnAnswer(Place reservation, const std::string& cell, const Status& answer);
  void TellNext(const std::string& cell, Link& link);
  void OnTold(const std::string& cell, Link& link, const stream::StreamId& deleted,
              const Status& status);
  void TellLater(const std::string& cell, Link& link);

  EventLoop& loop_;
  const cell::Catalogue& catalogue_;
  const CatalogueLinksOptions options_;
  const std::function<void(const stream::StreamId&, const std::string&)> on_told_;
  std::map<std::string, Link> links_;  // by cell
  std::list<Reservation> reservations_;
  Scope scope_;
};

}  // namespace tailcast::scheduler
