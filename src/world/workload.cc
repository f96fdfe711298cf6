#include "tailcast/world/workload.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "tailcast/base/crc32c.h"
#include "tailcast/producer/notify.h"
#include "tailcast/stream/message_headers.h"

namespace tailcast::world {

Workload::Workload(Deployment& deployment, stream::ShardId shard_id, std::string suffix)
    : shard(std::move(shard_id)),
      deployment_(deployment),
      suffix_(std::move(suffix)),
      rng_(Rng(deployment.options().seed).Fork("workload" + suffix_)) {}

// Messages without an outcome would get theirs from the agents' ends.
Workload::~Workload() {
  for (const auto& p : producers) {
    if (!p->dead()) Kill(*p);
  }
}

Workload::Producer& Workload::AddProducer(const std::string& cell, Program ports) {
  auto p = std::make_unique<Producer>();
  p->number = static_cast<int>(producers.size());
  p->process =
      &deployment_.Start(cell, "producer-" + std::to_string(p->number) + suffix_, std::move(ports));
  producers.push_back(std::move(p));
  return *producers.back();
}

void Workload::Open(Producer& p, producer::AgentOptions options) {
  Process* const process = p.process;
  producer::ProducerAgent::Hooks hooks;
  if (process->cell_client != nullptr) {
    hooks.notify = process->scope.Bind(
        [process](const producer::FileEvent& event, Callback<void(Status)> done) {
          if (process->cell_client == nullptr) return done(UnavailableError("no cell"));
          producer::NotifyScheduler(*process->cell_client, process->scope, event, std::move(done));
        });
  }
  process->producer = std::make_unique<producer::ProducerAgent>(process->ports(), shard, options,
                                                                std::move(hooks), process->seed);
  process->producer->Open(scope_.Bind([&p](Status status) { p.opened = std::move(status); }));
  WatchStream(*process, [process](const Status& why) { process->producer->OnDeleted(why); });
}

Workload::Consumer& Workload::AddConsumer(const std::string& cell, Program ports) {
  auto c = std::make_unique<Consumer>();
  Process& process = deployment_.Start(
      cell, "consumer-" + std::to_string(consumers.size()) + suffix_, std::move(ports));
  c->name = process.full_name();
  c->process = &process;
  c->since = deployment_.time().now();
  consumers.push_back(std::move(c));
  return *consumers.back();
}

void Workload::Start(Consumer& c, consumer::AgentOptions options, consumer::StartPoint start) {
  c.options = options;
  c.process->consumer = std::make_unique<consumer::ConsumerAgent>(
      c.process->ports(), shard, options, scope_.Bind([this, &c] { Drain(c); }));
  c.from_beginning = start.kind == consumer::StartPoint::Kind::kBeginning;
  c.agent()->Start(start);
  WatchStream(*c.process, [&c](const Status& why) { c.agent()->OnDeleted(why); });
}

void Workload::Restart(Consumer& c, Program ports) {
  const std::string cell = c.process->cell;
  const std::string name = c.process->name;
  deployment_.Kill(cell, name);
  c.process = &deployment_.Start(cell, name, std::move(ports));
  c.resumes = true;
  c.holds = false;
  c.got.resize(c.saved_got);
  c.numbers.resize(c.saved_got);
  c.got_at.resize(c.saved_got);
  c.checked = std::min(c.checked, c.saved_got);
  // What comes next must be what the saved position names.
  c.next_number = c.saved ? c.saved->number : -1;
  c.next_byte = c.saved ? c.saved->byte : -1;
  std::erase_if(c.passed, [&](const auto& gap) { return gap.first >= c.next_number; });
}

void Workload::Pass(Consumer& c, const stream::Position& to) {
  const int64_t from = std::max<int64_t>(c.next_number, 0);
  if (to.number > from) c.passed.emplace_back(from, to.number);
  c.next_number = to.number;
  c.next_byte = to.byte;
}

void Workload::NoteBeginning(Consumer& c) {
  if (c.next_number >= 0 || c.agent() == nullptr) return;
  if (const auto at = c.agent()->position()) Pass(c, *at);
}

void Workload::GoOnBehind(Consumer& c) {
  const auto first = c.agent()->first_available();
  deployment_.Say(c.name + " is told: " + c.agent()->status().ToString());
  if (first) Pass(c, *first);
  const bool from_beginning = c.from_beginning;
  c.process->consumer.reset();
  Start(c, c.options, first ? consumer::StartPoint::At(*first) : consumer::StartPoint::Beginning());
  c.from_beginning = from_beginning;
}

bool Workload::Passed(const Consumer& c, int64_t number) {
  return std::any_of(c.passed.begin(), c.passed.end(), [number](const auto& gap) {
    return gap.first <= number && number < gap.second;
  });
}

void Workload::ResumeThose(const std::function<bool(const Process&)>& ready) {
  for (const auto& c : consumers) {
    if (!c->resumes || !ready(*c->process)) continue;
    c->resumes = false;
    const bool from_beginning = c->from_beginning;
    Start(*c, c->options,
          c->saved ? consumer::StartPoint::At(*c->saved) : consumer::StartPoint::Beginning());
    c->from_beginning = from_beginning;
  }
}

bool Workload::AllGot() const {
  return pending_ == 0 && std::all_of(consumers.begin(), consumers.end(), [&](const auto& c) {
           return c->next_number > last_durable_ && !c->holds && !c->resumes;
         });
}

void Workload::WatchStream(Process& process, std::function<void(const Status&)> deleted) {
  if (process.cell_client == nullptr) return;
  process.stream_watch = std::make_unique<cell::StreamWatch>(
      *process.cell_client, shard.stream, process.scope.Bind(std::move(deleted)));
}

std::string Workload::MakeMessage(int producer, int64_t number, int64_t size) {
  std::string text = std::to_string(producer) + ":" + std::to_string(number) + ":";
  size -= static_cast<int64_t>(HeadersOf({producer, number}).size());
  while (static_cast<int64_t>(text.size()) < size) {
    text.push_back(static_cast<char>('a' + (text.size() * 7 + static_cast<size_t>(number)) % 26));
  }
  return text;
}

std::optional<Workload::MessageId> Workload::IdOf(std::string_view message) {
  MessageId id;
  const char* const end = message.data() + message.size();
  const auto producer = std::from_chars(message.data(), end, id.first);
  if (producer.ec != std::errc() || producer.ptr == end || *producer.ptr != ':') return {};
  if (std::from_chars(producer.ptr + 1, end, id.second).ec != std::errc()) return {};
  return id;
}

std::string Workload::HeadersOf(const MessageId& id) {
  if (id.second % 3 != 0) return "";
  const std::string name = std::to_string(id.first) + ":" + std::to_string(id.second);
  const std::vector<stream::Header> headers = {{"id", name}, {"empty", ""}};
  return *stream::Headers::Encode(headers);
}

Status Workload::Publish(Producer& p, int64_t size) {
  const MessageId id{p.number, p.published};
  const std::string headers = HeadersOf(id);
  const std::string message = MakeMessage(p.number, p.published, size);
  published[id] = {.size = static_cast<int64_t>(headers.size() + message.size()),
                   .at = deployment_.time().now()};
  const auto settle = [this, &p, id](const producer::Ack& ack) {
    // A dead producer's messages have their fate.
    if (!p.dead()) Settle(id, ack);
  };
  Status status = p.agent()->Publish(message, settle, headers);
  if (status.ok()) {
    ++p.published;
    ++pending_;
  } else {
    published.erase(id);
    ++p.refused;
  }
  return status;
}

void Workload::Settle(const MessageId& id, const producer::Ack& ack) {
  Published& entry = published[id];
  if (entry.fate != Fate::kPending) {
    acknowledged_twice_ =
        "acknowledged twice: " + std::to_string(id.first) + ":" + std::to_string(id.second);
    return;
  }
  entry.fate = ack.outcome == producer::AckOutcome::kDurable  ? Fate::kDurable
               : ack.outcome == producer::AckOutcome::kFailed ? Fate::kFailed
                                                              : Fate::kUnknown;
  entry.position = ack.position;
  if (entry.fate == Fate::kDurable) last_durable_ = std::max(last_durable_, ack.position.number);
  --pending_;
  (entry.fate == Fate::kDurable ? durable_ : failed_) += 1;
}

void Workload::Kill(Producer& p) {
  for (auto it = published.lower_bound({p.number, 0});
       it != published.end() && it->first.first == p.number; ++it) {
    if (it->second.fate != Fate::kPending) continue;
    it->second.fate = Fate::kUnknown;
    --pending_;
  }
  Process* const process = std::exchange(p.process, nullptr);
  const std::string name = process->name;
  const std::string cell = process->cell;
  deployment_.Kill(cell, name);
}

void Workload::Drain(Consumer& c) {
  if (c.holds) return;
  if (c.agent() == nullptr) {
    c.broken = "a callback of an agent that has ended";
    return;
  }
  if (files_go) NoteBeginning(c);
  std::vector<consumer::Message> messages;
  while (c.agent()->Take(messages, 1 + static_cast<int64_t>(rng_.Below(4000))) > 0) {
    for (const consumer::Message& m : messages) {
      deployment_.time().Trace(Crc32c(m.payload));
      if (c.next_number >= 0 && m.number != c.next_number) {
        c.broken =
            "message " + std::to_string(m.number) + " after " + std::to_string(c.next_number - 1);
      }
      if (c.next_byte >= 0 && m.byte != c.next_byte) c.broken = "byte " + std::to_string(m.byte);
      const auto id = IdOf(m.payload);
      if (id && m.headers.bytes() != HeadersOf(*id)) {
        c.broken = "the headers of message " + std::to_string(m.number);
      }
      c.next_number = m.number + 1;
      c.next_byte = m.end_byte();
    }
    if (rng_.Chance(0.1)) return Keep(c, messages);
    for (const consumer::Message& m : messages) {
      c.got.emplace_back(m.payload);
      c.numbers.push_back(m.number);
      c.got_at.push_back(deployment_.time().now());
    }
    messages.clear();
    c.agent()->Release();
    Save(c);
  }
}

// As a user does who need not go on exactly where it ended.
void Workload::Save(Consumer& c) {
  if (!rng_.Chance(0.2)) return;
  c.saved = c.agent()->position();
  c.saved_got = c.got.size();
}

// The user works for a while; its views must not change under it.
void Workload::Keep(Consumer& c, const std::vector<consumer::Message>& messages) {
  c.holds = true;
  std::vector<std::string> copies;
  for (const consumer::Message& m : messages) copies.emplace_back(m.payload);
  c.process->loop->After(Duration::Micros(static_cast<int64_t>(rng_.Below(20000))),
                         scope_.Bind([this, &c, messages, copies, at = deployment_.time().now()] {
                           if (c.agent() == nullptr) return;
                           for (size_t i = 0; i < messages.size(); ++i) {
                             if (messages[i].payload != copies[i])
                               c.broken = "a view changed while it was held";
                             c.got.push_back(copies[i]);
                             c.numbers.push_back(messages[i].number);
                             c.got_at.push_back(at);
                           }
                           c.holds = false;
                           c.agent()->Release();
                           Save(c);
                           Drain(c);
                         }));
}

std::string Workload::Violation(const Consumer& c, size_t from) const {
  if (!acknowledged_twice_.empty()) return acknowledged_twice_;
  if (!c.broken.empty()) return c.broken;
  // While its user holds views, it is not told yet to go on behind what is kept no more.
  if (c.agent() != nullptr && c.agent()->state() == consumer::ShardState::kFailed &&
      !(c.holds && IsOutOfRange(c.agent()->status()))) {
    return c.agent()->status().ToString();
  }
  std::map<int, int64_t> last;
  for (size_t i = from; i < c.got.size(); ++i) {
    const std::string& text = c.got[i];
    const std::string name = text.substr(0, text.find(':', text.find(':') + 1));
    int64_t place = static_cast<int64_t>(i);
    for (const auto& [first, end] : c.passed) place += end <= c.numbers[i] ? end - first : 0;
    if (c.from_beginning && c.numbers[i] != place) {
      return "message " + std::to_string(c.numbers[i]) + " at place " + std::to_string(place);
    }
    const auto id = IdOf(text);
    if (!id) return "foreign bytes";
    const auto& [number, message] = *id;
    const auto it = published.find(*id);
    if (it == published.end()) return "never published: " + name;
    if (text != MakeMessage(number, message, it->second.size)) return "wrong bytes in " + name;
    if (it->second.fate == Fate::kFailed) return "reported failed: " + name;
    if (it->second.fate == Fate::kDurable && it->second.position.number != c.numbers[i]) {
      return name + " at message " + std::to_string(c.numbers[i]) + ", acknowledged at " +
             it->second.position.ToString();
    }
    if (last.contains(number) && message <= last[number]) return "out of order: " + name;
    if (last.contains(number)) {
      for (auto skipped = published.find({number, last[number] + 1}); skipped != it; ++skipped) {
        if (skipped->second.fate == Fate::kDurable && !Passed(c, skipped->second.position.number)) {
          return "skipped what came before " + name;
        }
      }
    }
    last[number] = message;
  }
  return "";
}

std::string Workload::NewViolation(Consumer& c) const {
  // With the message before, whose order they are held to.
  std::string violation = Violation(c, c.checked > 0 ? c.checked - 1 : 0);
  c.checked = c.got.size();
  return violation;
}

std::string Workload::Incomplete(const Consumer& c) const {
  if (std::string violation = Violation(c); !violation.empty()) return violation;
  std::set<MessageId> got;
  for (const std::string& text : c.got) {
    if (const auto id = IdOf(text)) got.insert(*id);
  }
  for (const auto& [id, entry] : published) {
    if (entry.fate != Fate::kDurable || got.contains(id)) continue;
    if (Passed(c, entry.position.number)) continue;
    const consumer::Counters& n = c.agent()->counters();
    return "lost: " + std::to_string(id.first) + ":" + std::to_string(id.second) + "; consumer " +
           c.agent()->DebugString() + " after " + std::to_string(c.got.size()) + "; " +
           std::to_string(n.fetches) + " fetches, " + std::to_string(n.short_reads) + " short, " +
           std::to_string(n.primary_errors) + " errors" + (c.holds ? ", user holds" : "");
  }
  return "";
}

}  // namespace tailcast::world
