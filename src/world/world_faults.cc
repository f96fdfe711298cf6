// What goes wrong in a world beside what befalls any deployment (faults.h): its users die, and its
// operator changes things.
#include <algorithm>
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
  add(world::SecondScheduler(deployment_, SecondSchedulerProgram()), scaled(0.1));
  add(SetClock(deployment_, clock_most), scaled(0.2), 0.1);
  add(ResetConnections(deployment_), scaled(0.15));
  add(CutInside(deployment_), scaled(0.1), 0.15);
  add(ClogLink(deployment_), scaled(0.1), 0.1);
  add(PowerLoss(deployment_, options_.cells), scaled(0.08));
  add(ProducerDies(), scaled(0.08));
  add(ConsumerDies(), scaled(0.2));
  add(RingChanges(), scaled(0.1));
  add(OtherStreams(), scaled(0.2));
  add(Trims(), scaled(0.3));
  add(Retains(), scaled(0.1));
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

void World::ChangeTree(const std::vector<Edge>& edges) {
  v1::InstallStreamRequest install;
  stream_.set_tree_version(stream_.tree_version() + 1);
  *install.mutable_stream() = stream_;
  install.mutable_stream()->clear_tree();
  std::string text;
  for (const auto& [from, to] : edges) {
    v1::TreeEdge* edge = install.mutable_stream()->add_tree();
    edge->set_from(from);
    edge->set_to(to);
    text += (text.empty() ? "" : ", ") + from + " -> " + to;
  }
  deployment_.Say("re-route: " + text);
  Ask(source_cell(), "/tailcast.v1.Peer/InstallStream", install.SerializeAsString(),
      [](const Result<std::string>&) {});
}

// The stream gets another copy tree, as the optimiser gives it one.
Fault World::Reroute() {
  const auto apply = [this](Rng& rng) {
    const std::vector<std::string>& c = options_.cells;
    if (c.size() < 3) return;
    switch (rng.Below(3)) {
      case 0:
        return ChangeTree({{c[0], c[1]}, {c[1], c[2]}});
      case 1:
        return ChangeTree({{c[0], c[2]}, {c[2], c[1]}});
      default:
        return ChangeTree({{c[0], c[1]}, {c[0], c[2]}});
    }
  };
  return {.name = "reroute", .apply = apply};
}

void World::KillProducer(int shard) {
  Line& line = *lines_[static_cast<size_t>(shard)];
  if (!line.producer->opened.has_value()) return;
  deployment_.Say("kill -9 " + line.producer->process->full_name());
  line.load.Kill(*line.producer);
  line.producer = &line.load.AddProducer(source_cell(), RunClient(deployment_));
}

std::string World::ProducerName(int shard) const {
  return lines_[static_cast<size_t>(shard)]->producer->process->full_name();
}

Fault World::ProducerDies() {
  const auto apply = [this](Rng& rng) { KillProducer(static_cast<int>(rng.Below(lines_.size()))); };
  return {.name = "producer", .apply = apply};
}

void World::KillConsumer(int shard, size_t index) {
  Workload& load = lines_[static_cast<size_t>(shard)]->load;
  Workload::Consumer& consumer = *load.consumers[index];
  if (consumer.resumes) return;
  deployment_.Say("kill -9 " + consumer.name);
  load.Restart(consumer, RunClient(deployment_));
}

Fault World::ConsumerDies() {
  const auto apply = [this](Rng& rng) {
    const uint64_t shard = rng.Below(lines_.size());
    KillConsumer(static_cast<int>(shard), rng.Below(lines_[shard]->load.consumers.size()));
  };
  return {.name = "consumer", .apply = apply};
}

void World::AddConsumers(const std::string& cell, int count) {
  for (const auto& line : lines_) {
    for (int i = 0; i < count; ++i) {
      Workload::Consumer& c = line->load.AddConsumer(cell, RunClient(deployment_));
      c.options = SubscriberOptions();
      c.resumes = true;  // where it begins, as soon as it sees its cell
    }
  }
}

void World::SecondScheduler(const std::string& cell) {
  StartSecondScheduler(deployment_, cell, SecondSchedulerProgram());
}

Program World::SecondSchedulerProgram() {
  return RunNode(
      deployment_,
      {.caches = options_.caches, .low_latency = options_.low_latency, .scheduler_port = 7401});
}

void World::ChangeRing(const std::string& cell, const std::vector<std::string>& members) {
  v1::ChangeRingRequest request;
  std::string text;
  for (const std::string& member : members) {
    request.add_replicas(member);
    text += " " + member;
  }
  deployment_.Say("the ring of " + cell + " becomes" + text);
  Ask(cell, "/tailcast.v1.Cell/ChangeRing", request.SerializeAsString(),
      [](const Result<std::string>&) {});
}

// A cell's ring gets other members; the change before may be under way.
Fault World::RingChanges() {
  const auto apply = [this](Rng& rng) {
    const std::string& cell = DrawCell(deployment_, rng);
    const int all = options_.caches + options_.spares;
    const int without = 1 + static_cast<int>(rng.Below(static_cast<uint64_t>(all)));
    std::vector<std::string> members;
    for (int i = 1; i <= all; ++i) {
      if (i != without) members.push_back("cache-" + std::to_string(i));
    }
    ChangeRing(cell, members);
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

void World::Trim(int shard, int64_t before_byte) {
  Line& line = *lines_[static_cast<size_t>(shard)];
  v1::TrimStreamRequest request;
  request.set_name(stream_.name());
  request.set_incarnation(stream_.incarnation());
  request.set_shard(shard);
  request.set_before_byte(before_byte);
  deployment_.Say("trim shard " + std::to_string(shard) + " before byte " +
                  std::to_string(before_byte));
  line.oracles->Trimmed(before_byte);
  Ask(source_cell(), "/tailcast.v1.Cell/TrimStream", request.SerializeAsString(),
      [&line](const Result<std::string>& bytes) {
        v1::TrimStreamReply reply;
        if (bytes.ok() && reply.ParseFromString(*bytes)) {
          line.floor = std::max(line.floor, reply.floor_seq());
        }
      });
}

// An operator lets go of what no consumer would come back for.
Fault World::Trims() {
  const auto apply = [this](Rng& rng) {
    const uint64_t shard = rng.Below(lines_.size());
    const Line& line = *lines_[shard];
    if (!line.oracles) return;
    int64_t before = INT64_MAX;
    for (const auto& c : line.load.consumers) {
      before = std::min(before, c->saved ? c->saved->byte : 0);
    }
    Trim(static_cast<int>(shard), rng.Between(before / 2, before));
  };
  return {.name = "trim", .apply = apply};
}

void World::Retain(const v1::Retention& retention) {
  v1::SetRetentionRequest request;
  request.set_name(stream_.name());
  *request.mutable_retention() = retention;
  deployment_.Say("retention: " + (retention.shard_bytes_max() > 0
                                       ? std::to_string(retention.shard_bytes_max()) + " bytes"
                                   : retention.age_max_us() > 0
                                       ? std::to_string(retention.age_max_us()) + " us"
                                       : std::string("none")));
  for (const auto& line : lines_) line->oracles->Retained(retention);
  Ask(source_cell(), "/tailcast.v1.Cell/SetRetention", request.SerializeAsString(),
      [this, bytes = retention.shard_bytes_max()](const Result<std::string>& answer) {
        if (answer.ok()) retained_ = bytes;
      });
}

// What is kept is changed: so many bytes of each shard, or for so long, or everything. Consumers
// that are too slow for it go on behind what is kept no more.
Fault World::Retains() {
  const auto apply = [this](Rng& rng) {
    v1::Retention retention;
    switch (rng.Below(3)) {
      case 0:
        // Down to nothing but the newest file.
        retention.set_shard_bytes_max(1 +
                                      (rng.Between(1, 6 * options_.roll_bytes) >> rng.Below(12)));
        break;
      case 1:
        retention.set_age_max_us(Duration::Millis(rng.Between(100, 20000)).micros());
        break;
      default:
        break;
    }
    if (lines_.front()->oracles) Retain(retention);
  };
  return {.name = "retain", .apply = apply};
}

void World::GoOnBehindFloors(Line& line) {
  for (const auto& c : line.load.consumers) {
    if (c->resumes || c->holds || c->agent() == nullptr) continue;
    line.load.NoteBeginning(*c);
    // One that is told so of what is kept has failed.
    if (c->agent()->state() == consumer::ShardState::kFailed &&
        IsOutOfRange(c->agent()->status()) &&
        line.oracles->FirstKept(c->process->cell).number >= c->next_number) {
      line.load.GoOnBehind(*c);
    }
  }
}

}  // namespace tailcast::world
