#include "tailcast/storage/fake_objects.h"

#include <algorithm>
#include <utility>

namespace tailcast::storage {

FakeObjectsOptions FakeObjectsOptions::Swarm(Rng& rng) {
  FakeObjectsOptions o;
  if (rng.Chance(0.5)) o.request.tail_rate = o.answer.tail_rate = rng.Unit() * 0.05;
  if (rng.Chance(0.5)) o.answer_lost_rate = rng.Unit() * 0.05;
  if (rng.Chance(0.5)) o.twice_rate = rng.Unit() * 0.3;
  if (rng.Chance(0.5)) o.names_max = 1 + rng.Below(3);
  o.late_landing_max = Duration::Millis(1 + static_cast<int64_t>(rng.Below(5000)));
  return o;
}

FakeObjects::FakeObjects(EventLoop* loop, uint64_t seed, FakeObjectsOptions options)
    : loop_(loop), rng_(seed), options_(options) {}

void FakeObjects::DeletePool() {
  objects_.clear();
  bytes_ = 0;
  pool_deleted_ = true;
}

void FakeObjects::Lose(const std::string& name) {
  const auto it = objects_.find(name);
  TAILCAST_CHECK(it != objects_.end(), "no object " + name);
  bytes_ -= static_cast<int64_t>(it->second.bytes.size());
  objects_.erase(it);
}

void FakeObjects::Go() {
  stopped_ = false;
  for (auto& landing : std::exchange(held_, {})) landing();
}

void FakeObjects::LandKept() {
  for (auto& landing : std::exchange(kept_, {})) landing();
}

void FakeObjects::LosePower() {
  // In the order in which they were sent, each with even chances.
  for (auto& [number, landing] : std::exchange(landings_, {})) {
    if (rng_.Chance(0.5)) landing();
  }
  held_.clear();
}

std::vector<std::string> FakeObjects::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, object] : objects_) names.push_back(name);
  return names;
}

void FakeObjects::LandAfter(Duration delay, UniqueFunction<void()> landing) {
  const uint64_t number = ++last_landing_;
  landings_.emplace(number, std::move(landing));
  loop_->After(delay, scope_.Bind([this, number] {
    auto node = landings_.extract(number);
    if (node.empty()) return;
    if (stopped_) {
      held_.push_back(std::move(node.mapped()));
    } else {
      node.mapped()();
    }
  }));
}

ObjectReply FakeObjects::Apply(const ObjectRequest& request) {
  ObjectReply reply = std::holds_alternative<ObjectChange>(request)
                          ? Change(std::get<ObjectChange>(request))
                          : Look(std::get<ObjectLook>(request));
  if (reply.outcome == ObjectOutcome::kRefused) ++counters_.refused;
  return reply;
}

ObjectReply FakeObjects::Change(const ObjectChange& change) {
  using Create = ObjectChange::Create;
  using Test = ObjectChange::Guard::Test;
  ObjectReply reply;
  const auto it = objects_.find(change.object);
  const bool there = it != objects_.end();
  reply.outcome = ObjectOutcome::kAbsent;
  if (pool_deleted_ || (!there && change.create == Create::kNo)) return reply;
  reply.outcome = ObjectOutcome::kExists;
  if (there && change.create == Create::kExclusively) return reply;
  static const Object kEmpty;
  const Object& before = there ? it->second : kEmpty;
  const auto holds = [](const std::map<std::string, std::string>& map,
                        const ObjectChange::Guard& guard) {
    const auto found = map.find(guard.name);
    const std::string value = found != map.end() ? found->second : std::string();
    return guard.test == Test::kEquals ? value == guard.value : value < guard.value;
  };
  reply.outcome = ObjectOutcome::kRefused;
  for (const auto& guard : change.attribute_guards) {
    if (!holds(before.attributes, guard)) return reply;
  }
  for (const auto& guard : change.key_guards) {
    if (!holds(before.keys, guard)) return reply;
  }
  if (change.remove) {
    bytes_ -= static_cast<int64_t>(before.bytes.size());
    objects_.erase(it);
    reply.outcome = ObjectOutcome::kDone;
    return reply;
  }
  if (!change.append.empty() &&
      bytes_ + static_cast<int64_t>(change.append.size()) > options_.capacity_bytes) {
    reply.outcome = ObjectOutcome::kFailed;
    reply.error = ResourceExhaustedError("the pool is full");
    return reply;
  }
  Object& object = objects_[change.object];
  bytes_ += static_cast<int64_t>(change.append.size());
  object.bytes += change.append;
  for (const auto& [name, value] : change.set_attributes) object.attributes[name] = value;
  for (const auto& [name, value] : change.set_keys) object.keys[name] = value;
  for (const auto& name : change.remove_keys) object.keys.erase(name);
  reply.outcome = ObjectOutcome::kDone;
  return reply;
}

ObjectReply FakeObjects::Look(const ObjectLook& look) const {
  ObjectReply reply;
  const auto it = objects_.find(look.object);
  if (it == objects_.end()) {
    reply.outcome = ObjectOutcome::kAbsent;
    return reply;
  }
  const Object& object = it->second;
  reply.outcome = ObjectOutcome::kDone;
  if (look.attributes) reply.attributes = object.attributes;
  if (look.length > 0 && look.offset < static_cast<int64_t>(object.bytes.size())) {
    reply.bytes =
        object.bytes.substr(static_cast<size_t>(look.offset), static_cast<size_t>(look.length));
  }
  for (const std::string& key : look.keys) {
    if (const auto found = object.keys.find(key); found != object.keys.end()) {
      reply.keys.insert(*found);
    }
  }
  if (look.names_max > 0) {
    const size_t max = std::min(look.names_max, options_.names_max);
    for (auto key = object.keys.upper_bound(look.names_after); key != object.keys.end(); ++key) {
      if (reply.keys.size() == max) {
        reply.more = true;
        break;
      }
      reply.keys.emplace(key->first, "");
    }
  }
  return reply;
}

void FakeObjectStore::Send(ObjectRequest request, MonotonicTime deadline,
                           Callback<void(ObjectReply)> done) {
  if (requests_left_ < 0) return;
  if (--requests_left_ < 0) return;
  ++sent_;
  FakeObjects& o = *objects_;
  ++o.counters_.requests;
  const FakeObjectsOptions& options = o.options_;
  const auto shared = std::make_shared<ObjectRequest>(std::move(request));
  const Duration on_its_way = options.request.Draw(o.rng_);
  const Duration back = options.answer.Draw(o.rng_);
  const auto late = [&] {
    return on_its_way + Duration::Micros(o.rng_.Between(0, options.late_landing_max.micros()));
  };
  // The first of answer and deadline is told. The answer of a process that died is dropped.
  struct Waiting {
    Callback<void(ObjectReply)> done;
    TimerId deadline = 0;
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->done = std::move(done);
  waiting->deadline = loop_->At(deadline, scope_.Bind([this, waiting] {
    if (dead()) return;
    ObjectReply unknown;
    unknown.error = DeadlineExceededError("no answer of the store");
    std::exchange(waiting->done, nullptr)(std::move(unknown));
  }));
  auto answered = scope_.Bind([this, waiting](ObjectReply reply) {
    if (dead() || waiting->done == nullptr) return;
    loop_->Cancel(waiting->deadline);
    std::exchange(waiting->done, nullptr)(std::move(reply));
  });
  const bool decided = sent_ == decided_number_;
  if (decided) {
    const auto land = [&o, shared] { o.Apply(*shared); };
    if (decided_ == Fate::kTwice || decided_ == Fate::kLostDone) o.LandAfter(on_its_way, land);
    if (decided_ == Fate::kOnceMore || decided_ == Fate::kLostAndKept) o.kept_.emplace_back(land);
  }
  if (decided && decided_ != Fate::kTwice && decided_ != Fate::kOnceMore) {
    ObjectReply unknown;
    unknown.error = DeadlineExceededError("no answer of the store");
    Callback<void(ObjectReply)> told = std::move(answered);
    loop_->After(options.answer_timeout, std::move(told).With(std::move(unknown)));
    return;
  }
  if (o.rng_.Chance(options.answer_lost_rate)) {
    ++o.counters_.answers_lost;
    ObjectReply unknown;
    unknown.error = DeadlineExceededError("no answer of the store");
    Callback<void(ObjectReply)> told = std::move(answered);
    loop_->After(options.answer_timeout, std::move(told).With(std::move(unknown)));
    const uint64_t fate = o.rng_.Below(3);
    if (fate == 0) return;
    if (fate == 2) ++o.counters_.landed_late;
    o.LandAfter(fate == 1 ? on_its_way : late(), [&o, shared] { o.Apply(*shared); });
    return;
  }
  if (std::holds_alternative<ObjectChange>(*shared) && o.rng_.Chance(options.twice_rate)) {
    ++o.counters_.landed_twice;
    // Either before the one that is answered, or some time after it.
    const Duration once_more = o.rng_.Chance(0.5) ? on_its_way : late();
    o.LandAfter(once_more, [&o, shared] { o.Apply(*shared); });
  }
  Callback<void(ObjectReply)> told = std::move(answered);
  o.LandAfter(on_its_way, [&o, shared, back, loop = loop_, told = std::move(told)]() mutable {
    loop->After(back, std::move(told).With(o.Apply(*shared)));
  });
}

}  // namespace tailcast::storage
