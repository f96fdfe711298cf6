#include "tailcast/session/session.h"

#include <utility>

#include "tailcast/cell/process_config.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"
#include "tailcast/storage/posix_store.h"

namespace tailcast::session {

Session::Session(ThreadLoop* loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      rpc_(rpc::MakeGrpcConnector(*loop)),
      fabric_(fabric::MakeConnector(loop)),
      cell_(std::make_unique<cell::CellClient>(*loop, *rpc_, options_.cell, "")) {}

void Session::Start(Duration timeout, Callback<void(Status)> done) {
  cell_->Start(timeout, scope_.Bind([this, done = std::move(done)](Status status) mutable {
    OnView(std::move(status), std::move(done));
  }));
}

// A preference drops the other addresses; a server without one of the asked kind keeps none and
// counts as unreachable.
cache::RingConfig Session::Filtered(cache::RingConfig ring) const {
  if (options_.fabric == FabricPreference::kAuto) return ring;
  const std::string_view prefix = options_.fabric == FabricPreference::kShm ? "shm:" : "tcp:";
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
  const auto location = cell::ParseStoreUrl(view.store());
  if (!location.ok()) {
    done(location.status().WithContext("primary layer of cell " + view.cell()));
    return;
  }
  auto steps = StepLog::FromEnvironment(view.cell(), "client");
  if (!steps.ok()) {
    done(steps.status());
    return;
  }
  steps_ = std::move(*steps);
  storage::PosixStoreOptions store_options;
  store_options.steps = steps_.get();
  store_options.durability = location->durable ? storage::posix::Durability::kDurable
                                               : storage::posix::Durability::kPageCache;
  auto store = storage::PosixStore::Open(loop_, location->folder, store_options);
  if (!store.ok()) {
    done(store.status().WithContext("primary layer of cell " + view.cell()));
    return;
  }
  store_ = std::move(*store);
  cache::QuorumClientOptions data;
  data.service = cache::kDataService;
  cache::QuorumClientOptions metadata;
  metadata.service = cache::kMetadataService;
  data_cache_ = std::make_unique<cache::QuorumClient>(loop_, fabric_.get(), rpc_.get(), data,
                                                      Filtered(cell::DataRing(view)));
  metadata_cache_ = std::make_unique<cache::QuorumClient>(
      loop_, fabric_.get(), rpc_.get(), metadata, Filtered(cell::MetadataRing(view)));
  cell_->SetOnChange(scope_.Bind([this](const cell::CellView& changed) {
    data_cache_->UpdateRing(Filtered(cell::DataRing(changed)));
    metadata_cache_->UpdateRing(Filtered(cell::MetadataRing(changed)));
  }));
  done(OkStatus());
}

stream::CellPorts Session::ports() const {
  return {loop_, store_.get(), data_cache_.get(), metadata_cache_.get(), steps_.get()};
}

}  // namespace tailcast::session
