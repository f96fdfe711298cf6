#include "tailcast/session/session.h"

#include <cstdlib>
#include <utility>

#include "tailcast/base/host_port.h"
#include "tailcast/base/log.h"
#include "tailcast/base/metrics.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/storage/open_store.h"

namespace tailcast::session {
namespace {

const Logger kLog("session");

constexpr Duration kCheckAgain = Duration::Millis(100);

}  // namespace

Session::Session(ThreadLoop* loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      rpc_(rpc::MakeGrpcConnector(*loop)),
      deadline_(*loop),
      again_(*loop),
      cell_(std::make_unique<cell::CellClient>(*loop, *rpc_, options_.cell, "")) {}

void Session::Start(Duration timeout, Callback<void(Status)> done) {
  timeout_ = timeout;
  if (!IsHostPort(options_.cell)) {
    loop_->Post(scope_.Bind([this, done = std::move(done)]() mutable {
      done(InvalidArgumentError("cell: '" + options_.cell +
                                "' is not host:port of a cell's scheduler"));
    }));
    return;
  }
  if (!options_.writes_caches) cell_->UseFor(v1::VIEW_READS);
  finder_ = std::make_unique<cell::SchedulerFinder>(*cell_, kLog);
  cell_->Start(timeout, scope_.Bind([this, done = std::move(done)](Status status) mutable {
    OnView(std::move(status), std::move(done));
  }));
}

// A preference drops the other addresses; a server without one of the asked kind keeps none and
// counts as unreachable.
cache::RingConfig Session::Filtered(cache::RingConfig ring) const {
  if (options_.fabric == FabricPreference::kAuto) return ring;
  const std::string_view prefix = options_.fabric == FabricPreference::kShm   ? "shm:"
                                  : options_.fabric == FabricPreference::kTcp ? "tcp:"
                                                                              : "verbs:";
  for (cache::Replica& replica : ring.replicas) {
    std::erase_if(replica.fabric_addresses,
                  [&](const std::string& address) { return !address.starts_with(prefix); });
  }
  return ring;
}

void Session::OnView(Status status, Callback<void(Status)> done) {
  if (!status.ok()) {
    done(status.WithContext("cell at " + options_.cell));
    return;
  }
  const cell::CellView& view = cell_->view();
  const auto url = storage::ParseStoreUrl(view.store());
  if (!url.ok()) {
    done(url.status().WithContext("primary layer of cell " + view.cell()));
    return;
  }
  const char* const told = std::getenv("TAILCAST_CELL_KEY");
  const bool elsewhere = told != nullptr && *told != '\0';
  auto key = fabric::LoadCellKey(elsewhere ? told : view.cell_key());
  if (!key.ok()) {
    done(key.status().WithContext(
        "cell " + view.cell() +
        (elsewhere ? " (TAILCAST_CELL_KEY)" : " (TAILCAST_CELL_KEY=FILE names another file)")));
    return;
  }
  fabric_ = fabric::MakeConnector(loop_, {.key = std::move(*key)});
  auto steps = StepLog::FromEnvironment(view.cell(), "client");
  if (!steps.ok()) {
    done(steps.status());
    return;
  }
  steps_ = std::move(*steps);
  auto store = storage::OpenStore(loop_, *url, steps_);
  if (!store.ok()) {
    done(store.status().WithContext("primary layer of cell " + view.cell()));
    return;
  }
  store_ = std::move(*store);
  finder_->LookIn(*store_);
  auto caches = cell::CacheClients::Make(
      {.loop = loop_, .fabric = fabric_.get(), .rpc = rpc_.get(), .metrics = &ProcessMetrics()},
      {.cell = view.cell(), .replicas = cell::ReplicaNamesOf(cell::DataRing(view))});
  if (!caches.ok()) {
    done(caches.status().WithContext("caches of cell " + view.cell()));
    return;
  }
  caches_ = std::move(*caches);
  UpdateCaches(view);
  cell_->SetOnChange(scope_.Bind([this](const cell::CellView& changed) { UpdateCaches(changed); }));
  // A view without a number is made by hand, and so is its store.
  if (!options_.writes_caches || view.registry_id() == 0) return done(OkStatus());
  CheckStore(std::move(done));
}

void Session::CheckStore(Callback<void(Status)> done) {
  registry_ = std::make_unique<cell::RegistryReader>(*store_);
  checked_ = std::move(done);
  deadline_.After(timeout_, scope_.Bind([this] {
    OnStoreChecked(DeadlineExceededError(cell_->view().store() +
                                         ": it does not answer whether it is the cell's"));
  }));
  AskOwner();
}

void Session::AskOwner() {
  registry_->CheckOwner(cell_->view(), scope_.Bind([this](Status status) {
    if (registry_ == nullptr) return;  // too late
    if (status.ok() || IsFailedPrecondition(status)) return OnStoreChecked(std::move(status));
    // One that is damaged is there; its scheduler says so.
    if (IsDataLoss(status)) return OnStoreChecked(OkStatus());
    again_.After(kCheckAgain, scope_.Bind([this] { AskOwner(); }));  // a failure that may pass
  }));
}

void Session::OnStoreChecked(Status status) {
  deadline_.Cancel();
  again_.Cancel();
  Retire(*loop_, std::move(registry_));
  checked_(std::move(status));
}

// A cell that moved to other caches is read from its primary layer until the process starts anew.
void Session::UpdateCaches(const cell::CellView& view) {
  const Status updated =
      caches_->Update(Filtered(cell::DataRing(view)), Filtered(cell::MetadataRing(view)));
  if (!updated.ok()) kLog.Error("cell ", view.cell(), ": ", updated, "; start this process again");
}

stream::CellPorts Session::ports() const {
  return {loop_, store_.get(), &caches_->data(), &caches_->metadata(), steps_.get()};
}

}  // namespace tailcast::session
