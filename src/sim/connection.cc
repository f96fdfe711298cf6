#include "tailcast/sim/connection.h"

#include <algorithm>
#include <utility>

namespace tailcast::sim {
namespace {

// TCP sends again after a time that doubles with each attempt: up to as long as the cut has lasted.
constexpr Duration kRetransmitMax = Duration::Seconds(3);

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

Connection::Connection(Network& network, Network::End client, std::string address)
    : network_(network), address_(std::move(address)) {
  ends_[0] = std::move(client);
  ends_[1] = network_.EndOfServer(address_);
  if (ends_[1].loop_id == 0) ends_[1].host = HostOf(address_);
  for (const int side : {0, 1}) {
    links_[side] = &network_.State(ends_[side].host, ends_[1 - side].host);
  }
}

void Connection::Start() {
  OnCuts();
  established_ = !cut_[0] && !cut_[1];
  if (established_ && ends_[1].loop_id == 0) Refuse();
}

void Connection::Add(std::weak_ptr<Exchange> exchange) {
  // Forget what has ended, now and then, so that the list stays as long as what is open.
  if (exchanges_.size() >= 64 && (exchanges_.size() & (exchanges_.size() - 1)) == 0) {
    std::erase_if(exchanges_, [](const auto& weak) { return weak.expired(); });
  }
  exchanges_.push_back(std::move(exchange));
}

void Connection::Send(int from, Message message) {
  if (gone_[from]) return;
  if (Blocked(from) || !kept_[from].empty()) {
    kept_[from].push_back(std::move(message));
    return;
  }
  Transmit(from, std::move(message));
}

void Connection::Transmit(int from, Message message) {
  network_.time().Trace(message.digest);
  Network::LinkState& state = *links_[from];
  const MonotonicTime now = network_.time().now();
  MonotonicTime left = now;
  if (state.link.bytes_per_second > 0) {
    left =
        std::max(now, state.busy_until) + Duration::Micros(static_cast<int64_t>(message.bytes) *
                                                           1000000 / state.link.bytes_per_second);
    state.busy_until = left;
  }
  MonotonicTime arrival = left + state.link.delay + network_.SlowBy(ends_[from], ends_[1 - from]);
  if (state.link.jitter > Duration()) {
    arrival = arrival + Duration::Micros(network_.rng().Between(0, state.link.jitter.micros()));
  }
  if (message.lane != nullptr) {
    arrival = std::max(arrival, message.lane->last_arrival);
    message.lane->last_arrival = arrival;
  }
  if (message.last) arrival = std::max(arrival, last_arrival_[from]);
  last_arrival_[from] = std::max(last_arrival_[from], arrival);
  Arrive(1 - from, arrival, std::move(message.arrived));
  SimLoop* const loop = network_.Find(ends_[from].loop_id);
  if (message.left && loop != nullptr) loop->Arrive(left, std::move(message.left));
}

void Connection::Arrive(int to, MonotonicTime when, Task task) {
  SimLoop* const loop = network_.Find(ends_[to].loop_id);
  if (loop == nullptr) return;
  loop->Arrive(when, network_.scope().Bind(
                         [self = shared_from_this(), to, task = std::move(task)]() mutable {
                           if (!self->gone_[to]) task();
                         }));
}

void Connection::OnCuts() {
  const bool before[2] = {cut_[0], cut_[1]};
  for (const int from : {0, 1}) cut_[from] = network_.IsCut(ends_[from], ends_[1 - from]);
  SimLoop& loop = network_.loop();
  const bool was_cut = before[0] || before[1];
  const bool is_cut = cut_[0] || cut_[1];
  if (is_cut && !was_cut) {
    cut_since_ = loop.Now();
    break_timer_ = loop.After(network_.options().broken_after, scope_.Bind([this] { GiveUp(); }));
  }
  if (was_cut && !is_cut) loop.Cancel(break_timer_);
  const int64_t wait_us_max = std::min(loop.Now() - cut_since_, kRetransmitMax).micros();
  for (const int from : {0, 1}) {
    if (cut_[from]) loop.Cancel(flush_timers_[from]);
    if (cut_[from] || !before[from]) continue;
    flush_timers_[from] = loop.After(Duration::Micros(network_.rng().Between(0, wait_us_max)),
                                     scope_.Bind([this, from] { Flush(from); }));
  }
}

// The client notices; the server when its own time is up, or when it hears a reset.
void Connection::GiveUp() {
  dying_ = true;
  const auto self = shared_from_this();
  Drop();
  const Status why = UnavailableError(address_ + ": no answer; the connection is given up");
  const int64_t later_us_max = network_.options().broken_after.micros();
  BreakAt(1, Duration::Micros(network_.rng().Between(0, later_us_max)), why);
  BreakAt(0, Duration(), why);
}

void Connection::Flush(int from) {
  const auto self = shared_from_this();
  if (!established_ && !cut_[0] && !cut_[1]) {
    established_ = true;
    if (ends_[1].loop_id == 0) return Refuse();
    Flush(1 - from);
  }
  while (!kept_[from].empty() && !Blocked(from)) {
    Message message = std::move(kept_[from].front());
    kept_[from].pop_front();
    Transmit(from, std::move(message));
  }
}

// A closed port answers with a reset after a round trip.
void Connection::Refuse() {
  dying_ = true;
  const auto self = shared_from_this();
  Drop();
  BreakAt(0, links_[0]->link.delay * 2, UnavailableError(address_ + ": connection refused"));
}

void Connection::Reset() {
  if (std::exchange(dying_, true)) return;
  for (const int side : {0, 1}) {
    BreakAt(side, links_[1 - side]->link.delay,
            UnavailableError(address_ + ": connection reset by peer"));
  }
}

void Connection::OnDeath(int side) {
  gone_[side] = true;
  if (std::exchange(dying_, true) && gone_[1 - side]) return;
  // Its kernel sends what is left, and then the end.
  Message end;
  end.bytes = 64;
  end.last = true;
  end.arrived = network_.scope().Bind([self = shared_from_this(), side] {
    self->Break(1 - side, UnavailableError("connection broken"));
  });
  if (Blocked(side) || !kept_[side].empty()) {
    kept_[side].push_back(std::move(end));
  } else {
    Transmit(side, std::move(end));
  }
}

void Connection::BreakAt(int side, Duration after, Status why) {
  SimLoop* const loop = network_.Find(ends_[side].loop_id);
  if (loop == nullptr) return;
  loop->Arrive(network_.time().now() + after,
               network_.scope().Bind([self = shared_from_this(), side, why = std::move(why)] {
                 self->Break(side, why);
               }));
}

void Connection::Break(int side, const Status& why) {
  if (std::exchange(gone_[side], true)) return;
  if (side == 0) network_.Forget(*this);
  if (gone_[1 - side]) {
    Drop();
  } else {
    kept_[side].clear();
  }
  const auto exchanges = exchanges_;
  for (const auto& weak : exchanges) {
    if (const auto exchange = weak.lock()) exchange->OnBroken(side, why);
  }
}

}  // namespace tailcast::sim
