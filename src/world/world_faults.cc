// What goes wrong in a world beside what befalls any deployment (faults.h): its users die, and its
// operator changes things.
#include <functional>

#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/world/programs.h"
#include "tailcast/world/world.h"

namespace tailcast::world {

void World::AddFaults() {
  const auto add = [this](Fault fault, double apply, double heal = 0) {
    if (options_.Has(fault.name)) faults_.Add(std::move(fault), apply, heal);
  };
  // How strong they are is drawn, too.
  Rng strength = Rng(options_.seed).Fork("strength");
  const auto scaled = [&](double probability) { return probability * (0.3 + strength.Unit()); };
  const NodeSetup second{
      .caches = options_.caches, .low_latency = options_.low_latency, .scheduler_port = 7401};
  const Duration clock_most =
      strength.Chance(0.2) ? Duration::Seconds(100) : Duration::Millis(strength.Between(1, 3000));
  add(KillProcess(deployment_), scaled(0.3));
  add(StopProcess(deployment_), scaled(0.17), 0.3);
  add(CutLink(deployment_), scaled(0.2));
  add(BadFabric(deployment_), scaled(0.3));
  add(SlowPeer(deployment_), scaled(0.2));
  add(BadDisk(deployment_, options_.cells), scaled(0.2));
  add(Reroute(), scaled(0.1));
  add(KeepDown(deployment_), scaled(0.12), 0.15);
  add(LoseCell(deployment_), scaled(0.04), 0.2);
  add(SecondScheduler(deployment_, RunNode(deployment_, second)), scaled(0.1));
  add(SetClock(deployment_, clock_most), scaled(0.2), 0.1);
  add(ResetConnections(deployment_), scaled(0.15));
  add(CutInside(deployment_), scaled(0.1), 0.15);
  add(ClogLink(deployment_), scaled(0.1), 0.1);
  add(PowerLoss(deployment_, options_.cells), scaled(0.08));
  add(KillProducer(), scaled(0.08));
  add(KillConsumer(), scaled(0.2));
  add(ChangeRing(), scaled(0.1));
  add(OtherStreams(), scaled(0.2));
  add(Trim(), scaled(0.3));
}

void World::Ask(const std::string& cell, const char* method, const std::string& request,
                std::function<void(const Result<std::string>&)> then) {
  std::unique_ptr<rpc::Client>& client = operator_clients_[cell];
  if (client == nullptr) {
    client = operator_->connector->MakeClient(deployment_.SchedulerAddress(cell), "");
  }
  client->Call(
      method, request, Duration::Seconds(5),
      scope_.Bind([this, method, then = std::move(then)](const Result<std::string>& answer) {
        // A disturbance that nobody understands is none.
        if (IsInvalidArgument(answer.status()) && problem_.empty()) {
          problem_ = std::string("the operator's ") + method + ": " + answer.status().ToString();
        }
        then(answer);
      }));
}

// The stream gets another copy tree, as the optimiser gives it one.
Fault World::Reroute() {
  const auto apply = [this](Rng& rng) {
    const std::vector<std::string>& c = options_.cells;
    if (c.size() < 3) return;
    v1::InstallStreamRequest install;
    stream_.set_tree_version(stream_.tree_version() + 1);
    *install.mutable_stream() = stream_;
    install.mutable_stream()->clear_tree();
    const auto add = [&](const std::string& from, const std::string& to) {
      v1::TreeEdge* edge = install.mutable_stream()->add_tree();
      edge->set_from(from);
      edge->set_to(to);
    };
    switch (rng.Below(3)) {
      case 0:
        add(c[0], c[1]);
        add(c[1], c[2]);
        break;
      case 1:
        add(c[0], c[2]);
        add(c[2], c[1]);
        break;
      default:
        add(c[0], c[1]);
        add(c[0], c[2]);
        break;
    }
    deployment_.Say("re-route");
    Ask(source_cell(), "/tailcast.v1.Peer/InstallStream", install.SerializeAsString(),
        [](const Result<std::string>&) {});
  };
  return {.name = "reroute", .apply = apply};
}

// And another one in its place, which takes over or waits until the old one is known to be dead.
Fault World::KillProducer() {
  const auto apply = [this](Rng& rng) {
    Line& line = *lines_[rng.Below(lines_.size())];
    if (!line.producer->opened.has_value()) return;
    deployment_.Say("kill -9 " + line.producer->process->full_name());
    line.load.Kill(*line.producer);
    line.producer = &line.load.AddProducer(source_cell(), RunClient(deployment_));
  };
  return {.name = "producer", .apply = apply};
}

Fault World::KillConsumer() {
  const auto apply = [this](Rng& rng) {
    Workload& load = lines_[rng.Below(lines_.size())]->load;
    Workload::Consumer& consumer = *load.consumers[rng.Below(load.consumers.size())];
    if (consumer.resumes) return;
    deployment_.Say("kill -9 " + consumer.name);
    load.Restart(consumer, RunClient(deployment_));
  };
  return {.name = "consumer", .apply = apply};
}

// A cell's ring gets other members; the change before may be under way.
Fault World::ChangeRing() {
  const auto apply = [this](Rng& rng) {
    const std::string& cell = DrawCell(deployment_, rng);
    v1::ChangeRingRequest request;
    const int all = options_.caches + options_.spares;
    const int without = 1 + static_cast<int>(rng.Below(static_cast<uint64_t>(all)));
    for (int i = 1; i <= all; ++i) {
      if (i != without) request.add_replicas("cache-" + std::to_string(i));
    }
    deployment_.Say("the ring of " + cell + " without cache-" + std::to_string(without));
    Ask(cell, "/tailcast.v1.Cell/ChangeRing", request.SerializeAsString(),
        [](const Result<std::string>&) {});
  };
  return {.name = "ring", .apply = apply};
}

// Streams come and go in all cells, beside the one that is looked at. Now and then two cells are
// asked for the same name at once; it may become one's alone.
Fault World::OtherStreams() {
  const auto apply = [this](Rng& rng) {
    if (others_there_.empty() || rng.Chance(0.5)) {
      const std::string name = "other-" + std::to_string(++others_);
      if (!rng.Chance(0.3)) {
        others_there_[name] = source_cell();
        return CreateOther(name, source_cell());
      }
      for (const std::string& cell : options_.cells) CreateOther(name, cell);
      return;
    }
    const std::string name = others_there_.begin()->first, cell = others_there_.begin()->second;
    deployment_.Say("delete " + name);
    doomed_.insert(name);
    created_.erase(name);
    v1::DeleteStreamRequest request;
    request.set_name(name);
    Ask(cell, "/tailcast.v1.Cell/DeleteStream", request.SerializeAsString(),
        [this, name](const Result<std::string>& done) {
          deployment_.Say("deleted " + name + ": " + done.status().ToString());
          // It was never made, or an earlier answer got lost.
          if (!done.ok() && !IsNotFound(done.status())) return;
          others_there_.erase(name);
          if (!unclear_.contains(name)) deleted_.insert(name);
        });
  };
  return {.name = "streams", .apply = apply};
}

void World::CreateOther(const std::string& name, const std::string& cell) {
  v1::CreateStreamRequest request;
  request.mutable_stream()->set_name(name);
  request.mutable_stream()->set_shards(1);
  request.mutable_stream()->set_chunk_size(4096);
  deployment_.Say("create " + name + " in " + cell);
  Ask(cell, "/tailcast.v1.Cell/CreateStream", request.SerializeAsString(),
      [this, name, cell](const Result<std::string>& bytes) {
        deployment_.Say("created " + name + " in " + cell + ": " + bytes.status().ToString());
        // Nobody knows whether it comes about later, or an earlier one was deleted in between.
        const bool known = bytes.ok() || bytes.status().code() == StatusCode::kAlreadyExists;
        if (!known || (bytes.ok() && doomed_.contains(name))) {
          unclear_.insert(name);
          deleted_.erase(name);
        }
        if (!bytes.ok() || doomed_.contains(name)) return;
        const auto [other, first] = others_there_.emplace(name, cell);
        if (!first && other->second != cell && problem_.empty()) {
          problem_ = "a name is one stream's: " + name + " was created in " + other->second +
                     " and in " + cell;
        }
        created_.insert(name);
      });
}

// An operator lets go of what no consumer would come back for.
Fault World::Trim() {
  const auto apply = [this](Rng& rng) {
    Line& line = *lines_[rng.Below(lines_.size())];
    if (!line.oracles) return;
    int64_t before = INT64_MAX;
    for (const auto& c : line.load.consumers) {
      before = std::min(before, c->saved ? c->saved->byte : 0);
    }
    before = rng.Between(before / 2, before);
    v1::TrimStreamRequest request;
    request.set_name(stream_.name());
    request.set_incarnation(stream_.incarnation());
    request.set_shard(line.load.shard.shard);
    request.set_before_byte(before);
    deployment_.Say("trim shard " + std::to_string(request.shard()) + " before byte " +
                    std::to_string(before));
    line.oracles->Trimmed(before);
    Ask(source_cell(), "/tailcast.v1.Cell/TrimStream", request.SerializeAsString(),
        [&line](const Result<std::string>& bytes) {
          v1::TrimStreamReply reply;
          if (bytes.ok() && reply.ParseFromString(*bytes)) {
            line.floor = std::max(line.floor, reply.floor_seq());
          }
        });
  };
  return {.name = "trim", .apply = apply};
}

}  // namespace tailcast::world
