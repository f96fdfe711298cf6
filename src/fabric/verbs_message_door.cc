#include "tailcast/fabric/verbs_message_door.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tailcast/base/check.h"
#include "tailcast/base/log.h"
#include "tailcast/fabric/metrics.h"
#include "tailcast/fabric/tcp_message_door.h"

namespace tailcast::fabric {
namespace {

const Logger kLog("fabric");
// Of one channel before the loop's other work has its turn.
constexpr size_t kTurnBytesMax = 256 << 10;

Status Failed(const std::string& what) {
  return UnavailableError(what + ": " + std::strerror(errno));
}

// A queue's context is its channel's ticket.
void* ContextOf(uint64_t ticket) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number that comes back, never a place
  return reinterpret_cast<void*>(static_cast<uintptr_t>(ticket));
}

}  // namespace

VerbsMessageDoor::VerbsMessageDoor(Reactor* reactor, MessageService* service,
                                   VerbsQueuePairs* queue_pairs, std::string name, std::string host,
                                   Duration peer_timeout)
    : reactor_(reactor),
      service_(service),
      name_(std::move(name)),
      peer_timeout_(peer_timeout),
      listener_(reactor, this, queue_pairs, name_, std::move(host)) {}

Status VerbsMessageDoor::Listen() {
  Status status;
  reactor_->Call([&] { status = Open(); });
  if (!status.ok()) return status;
  service_->loop()->Post(loop_scope_.Bind([this] {
    const Status watched = service_->loop()->WatchDescriptor(
        completions_->fd, loop_scope_.Bind([this] { OnCompletions(); }));
    watching_ = watched.ok();
    if (watched.ok()) return;
    cannot_watch_ = true;
    kLog.Error(name_, ": no messages by RDMA: ", watched.message());
  }));
  return OkStatus();
}

Status VerbsMessageDoor::Open() {
  TAILCAST_RETURN_IF_ERROR(listener_.Open());
  // Its own: with its queue pairs no key of the regions is good.
  pd_.reset(ibv_alloc_pd(listener_.device()));
  if (pd_ == nullptr) return Failed("make an RDMA protection domain");
  completions_.reset(ibv_create_comp_channel(listener_.device()));
  if (completions_ == nullptr) return Failed("make an RDMA event channel");
  SetNonBlocking(completions_->fd);
  shares_ = VerbsPool::Suits(listener_.device(), listener_.attributes());
  if (shares_) {
    events_.emplace(reactor_, listener_.device());
    TAILCAST_RETURN_IF_ERROR(events_->Start());
  }
  kLog.Info(name_, ": message channels by RDMA have ",
            shares_ ? "their receive buffers together" : "receive buffers of their own each");
  return OkStatus();
}

VerbsPool* VerbsMessageDoor::Pool() {
  if (!shares_ || pool_ != nullptr) return pool_.get();
  Result<std::unique_ptr<VerbsPool>> made =
      VerbsPool::Make(pd_.get(), listener_.attributes(), TcpMessageDoor::kChannelsMax,
                      peer_timeout_, [this] { reactor_->Post(scope_.Bind([this] { OnLow(); })); });
  if (made.ok()) {
    pool_ = std::move(made).value();
  } else {
    shares_ = false;
    kLog.Warn(name_,
              ": each message channel by RDMA has receive buffers of its own: ", made.status());
  }
  return pool_.get();
}

void VerbsMessageDoor::OnLow() {
  LowOnBuffers().Add();
  if (pool_ == nullptr) return;
  pool_->Watch();
  std::vector<std::pair<uint64_t, std::shared_ptr<VerbsLink>>> links;
  {
    std::lock_guard lock(served_mutex_);
    for (const auto& [ticket, served] : served_) links.emplace_back(ticket, served.link);
  }
  for (const auto& [ticket, link] : links) {
    const std::string wrong = link->Look();
    if (!wrong.empty()) Fail(ticket, link->broke() ? "" : wrong);
  }
}

void VerbsMessageDoor::Shut() {
  if (std::exchange(watching_, false)) service_->loop()->CancelDescriptor(completions_->fd);
  loop_scope_.End();
  reactor_->Call([this] {
    scope_.End();
    while (!clients_.empty()) Forget(clients_.begin()->first);
    pool_ = nullptr;
    if (events_.has_value()) events_->Stop();
    events_.reset();
    completions_ = nullptr;
    pd_ = nullptr;
    listener_.Shut();
  });
}

VerbsOffers::Made VerbsMessageDoor::Offer(MessageService::Life life,
                                          Callback<void(const std::string& why)> broke) {
  if (!listener_.is_open()) return None("it is going away");
  if (cannot_watch_) return None("it can't wait for messages by RDMA");
  const auto ticket = listener_.Draw();
  if (!ticket.has_value()) {
    RefusedConnections("verbs", HelloStatus::kTooMany).Add();
    return None("it has too many RDMA connections");
  }
  VerbsChannelOffer offer{};
  offer.version = kVerbsVersion;
  offer.port = listener_.port();
  offer.token = ticket->token;
  offer.stall_timeout_us = static_cast<uint64_t>(peer_timeout_.micros());
  std::snprintf(offer.host, sizeof(offer.host), "%s", listener_.host().c_str());
  Client& client = clients_[ticket->number];
  client.life = life;
  client.broke = std::move(broke);
  return {.body = EncodeVerbsChannelOffer(offer), .regions = 1, .ticket = ticket->number};
}

void VerbsMessageDoor::Forget(uint64_t ticket) {
  End(ticket);
  clients_.erase(ticket);
  listener_.Forget(ticket);
}

void VerbsMessageDoor::End(uint64_t ticket) {
  const auto client = clients_.find(ticket);
  if (client == clients_.end()) return;
  Served served;
  {
    std::lock_guard lock(served_mutex_);
    const auto node = served_.extract(ticket);
    if (node) served = std::move(node.mapped());
  }
  if (served.link != nullptr) served.link->Close();
  client->second.connection = nullptr;  // the queue pair, before its completion queues
  if (served.link != nullptr) served.link->LetGo();
  if (pool_ != nullptr && pool_->spent()) pool_ = nullptr;
}

MonotonicTime VerbsMessageDoor::StuckSince(uint64_t ticket) {
  std::shared_ptr<VerbsLink> link;
  {
    std::lock_guard lock(served_mutex_);
    const auto it = served_.find(ticket);
    if (it == served_.end()) return MonotonicTime::Max();
    link = it->second.link;
  }
  const MonotonicTime since = link->stuck_since();
  // The loop may not have come to its packets for long.
  if (const std::string wrong = link->Look(); !wrong.empty() && !link->broke()) Fail(ticket, wrong);
  return since;
}

std::optional<VerbsRefusal> VerbsMessageDoor::Accept(uint64_t ticket, VerbsOwned<rdma_cm_id>& id,
                                                     const rdma_conn_param&) {
  const auto client = clients_.find(ticket);
  TAILCAST_CHECK(client != clients_.end(), "a ticket that outlived its channel");
  Result<std::shared_ptr<VerbsLink>> made =
      VerbsLink::Make(VerbsMessagesCore::Side::kServer, id.get(), pd_.get(), completions_.get(),
                      ContextOf(ticket), Pool());
  if (!made.ok()) return VerbsRefusal{"no_queue_pair", made.status()};
  const std::shared_ptr<VerbsLink> link = std::move(made).value();
  {
    // Before it is accepted: messages may come at once.
    std::lock_guard lock(served_mutex_);
    served_[ticket] = {.life = client->second.life, .link = link};
  }
  rdma_conn_param accept = link->ConnectionParameters();
  if (rdma_accept(id.get(), &accept) != 0 || !link->SetRepeats()) {
    VerbsRefusal failed{"not_accepted", Failed("accept")};
    link->Close();
    rdma_destroy_qp(id.get());
    link->LetGo();
    std::lock_guard lock(served_mutex_);
    served_.erase(ticket);
    return failed;
  }
  client->second.connection = std::move(id);
  return std::nullopt;
}

void VerbsMessageDoor::OnDisconnected(uint64_t ticket) {
  End(ticket);
  const auto client = clients_.find(ticket);
  if (client == clients_.end() || !client->second.broke) return;
  reactor_->Post(
      scope_.Bind([broke = std::exchange(client->second.broke, nullptr)]() mutable { broke(""); }));
}

void VerbsMessageDoor::OnCompletions() {
  std::vector<uint64_t> tickets;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(completions_.get(), &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);  // at once: who destroys the queue waits for it
    tickets.push_back(reinterpret_cast<uintptr_t>(context));
  }
  std::sort(tickets.begin(), tickets.end());
  tickets.erase(std::unique(tickets.begin(), tickets.end()), tickets.end());
  for (const uint64_t ticket : tickets) Serve(ticket);
}

void VerbsMessageDoor::Serve(uint64_t ticket) {
  Served served;
  {
    std::lock_guard lock(served_mutex_);
    const auto it = served_.find(ticket);
    if (it == served_.end()) return;
    served = it->second;
  }
  VerbsLink& link = *served.link;
  size_t handled = 0, bytes = 0;
  for (bool armed = false;;) {
    messages_.clear();
    bool more = false;
    std::string wrong = link.Take(&messages_, &more);
    for (const std::string& message : messages_) {
      answer_.clear();
      // The gate is closed: the connection goes, too.
      if (!service_->Handle(served.life, message, answer_)) return;
      const std::string_view part = answer_;
      link.Send(std::span(&part, 1));
      ++handled;
      bytes += message.size();
    }
    // More than an honest client can have unanswered.
    if (wrong.empty() && link.queued() > kMessageWindow) wrong = "it does not take its answers";
    if (!wrong.empty()) return Fail(ticket, link.broke() ? "" : wrong);
    if (handled >= kMessageWindow || bytes >= kTurnBytesMax) {
      if (!posted_.insert(ticket).second) return;  // it has its next turn already
      service_->loop()->Post(loop_scope_.Bind([this, ticket] {
        posted_.erase(ticket);
        Serve(ticket);
      }));
      return;
    }
    if (!messages_.empty() || more) continue;
    if (armed) return;
    link.Arm();
    armed = true;
  }
}

void VerbsMessageDoor::Fail(uint64_t ticket, const std::string& why) {
  reactor_->Post(scope_.Bind([this, ticket, why] {
    const auto client = clients_.find(ticket);
    if (client == clients_.end() || client->second.connection == nullptr) return;
    End(ticket);
    if (client->second.broke) std::exchange(client->second.broke, nullptr)(why);
  }));
}

}  // namespace tailcast::fabric
