#include "tailcast/reader/writer_links.h"

namespace tailcast::reader {
namespace {
// What is known of a writer without operations is kept for so long: it may be silent.
constexpr Duration kIdleMax = Duration::Seconds(60);
}  // namespace

std::shared_ptr<rpc::Client> WriterLinks::Add(uint64_t operation, const std::string& address,
                                              const std::string& via) {
  DropIdle();
  const Address key{address, via};
  addresses_[operation] = key;
  std::unique_ptr<Link>& link = links_[key];
  if (link == nullptr) {
    link = std::make_unique<Link>();
    link->client = connector_.MakeClient(address, via);
    link->watch = std::make_unique<rpc::BeatWatch>(
        loop_, *link->client, "/tailcast.v1.Writer/Beats", rpc::BeatWatchOptions(),
        rpc::BeatWatch::Hooks{[link = link.get()] { link->silent = OkStatus(); },
                              [this, key](const Status& why) { OnSilent(key, why); }});
  }
  if (link->watch->broken()) {
    // Whoever gives us the operation believes that the writer is there (again).
    link->silent = OkStatus();
    link->watch->ConnectNow();
  }
  link->operations.insert(operation);
  return link->client;
}

void WriterLinks::Remove(uint64_t operation) {
  const auto node = addresses_.extract(operation);
  if (node.empty()) return;
  Link& link = *links_.at(node.mapped());
  link.operations.erase(operation);
  link.idle_since = loop_.Now();
}

Status WriterLinks::Check(uint64_t operation) const {
  const auto address = addresses_.find(operation);
  return address == addresses_.end() ? OkStatus() : links_.at(address->second)->silent;
}

void WriterLinks::OnSilent(const Address& address, const Status& why) {
  Link& link = *links_.at(address);
  link.silent = why;
  silent_.Add();
  const std::set<uint64_t> operations = link.operations;
  for (const uint64_t operation : operations) on_lost_(operation, why);
}

void WriterLinks::DropIdle() {
  std::erase_if(links_, [&](const auto& entry) {
    const Link& link = *entry.second;
    return link.operations.empty() && loop_.Now() - link.idle_since > kIdleMax;
  });
}

}  // namespace tailcast::reader
