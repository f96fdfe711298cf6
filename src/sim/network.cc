// The network itself: links, cuts, and who is connected with whom.
#include <utility>

#include "tailcast/sim/connection.h"
#include "tailcast/sim/sim_rpc.h"

namespace tailcast::sim {

Network::Network(VirtualTime& time, Rng rng, NetworkOptions options)
    : time_(time), rng_(rng), options_(options), loop_(time.MakeLoop("network")) {}

Network::~Network() {
  for (const auto& connection : AllConnections()) connection->Drop();
}

Link& Network::LinkBetween(const std::string& from, const std::string& to) {
  return State(from, to).link;
}

void Network::Cut(const std::string& from, const std::string& to, bool cut) {
  if (cut) {
    cuts_.insert({from, to});
  } else {
    cuts_.erase({from, to});
  }
  for (const auto& connection : AllConnections()) connection->OnCuts();
}

void Network::Partition(const std::string& a, const std::string& b, bool cut) {
  Cut(a, b, cut);
  Cut(b, a, cut);
}

void Network::MendAll() {
  cuts_.clear();
  for (const auto& connection : AllConnections()) connection->OnCuts();
}

bool Network::IsCut(const End& from, const End& to) const {
  if (cuts_.empty()) return false;
  return cuts_.contains({from.host, to.host}) || cuts_.contains({from.process, to.process}) ||
         cuts_.contains({from.process, to.host}) || cuts_.contains({from.host, to.process});
}

void Network::Reset(const std::string& a, const std::string& b) {
  const auto is = [](const End& end, const std::string& name) {
    return end.host == name || end.process == name;
  };
  for (const auto& connection : AllConnections()) {
    const End& client = connection->end(0);
    const End& server = connection->end(1);
    if ((is(client, a) && is(server, b)) || (is(client, b) && is(server, a))) connection->Reset();
  }
}

std::shared_ptr<Connection> Network::Connect(const End& client, const std::string& address) {
  std::shared_ptr<Connection>& current = by_client_[{client.loop_id, address}];
  if (current == nullptr) {
    current = std::make_shared<Connection>(*this, client, address);
    connections_.push_back(current);
    current->Start();
  }
  return current;
}

void Network::Forget(const Connection& connection) {
  const auto found = by_client_.find({connection.end(0).loop_id, connection.address()});
  if (found != by_client_.end() && found->second.get() == &connection) by_client_.erase(found);
}

std::vector<std::shared_ptr<Connection>> Network::AllConnections() {
  std::vector<std::shared_ptr<Connection>> all;
  std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : connections_) all.push_back(weak.lock());
  return all;
}

Network::Load Network::load() {
  Load load{.queued_bytes_max = queued_bytes_max_};
  for (const auto& connection : AllConnections()) {
    ++load.connections;
    load.kept_messages += connection->kept();
  }
  return load;
}

Network::End Network::Join(SimLoop& loop, const std::string& host) {
  loops_[loop.number()] = &loop;
  return End{loop.number(), host, loop.name()};
}

SimLoop* Network::Find(uint64_t loop_id) const {
  auto it = loops_.find(loop_id);
  return it == loops_.end() ? nullptr : it->second;
}

}  // namespace tailcast::sim
