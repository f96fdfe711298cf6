// tailcast consume: the messages of a stream, in order, to standard output.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tailcast/app/command.h"
#include "tailcast/app/message_format.h"
#include "tailcast/app/message_output.h"
#include "tailcast/app/position_file.h"
#include "tailcast/app/shard_ends.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/consumer/end_point.h"
#include "tailcast/stream/framing.h"

namespace tailcast::app {
namespace {

// So long nothing came although more is there: worth a word.
constexpr Duration kComplainAfter = Duration::Seconds(5);
// So much longer than --until-idle one that is busy is waited for.
constexpr Duration kBusyMax = Duration::Seconds(20);

struct ConsumeOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream;
  int32_t shard = -1;
  std::string framing = "lines";
  std::vector<std::string> from, to;
  std::string format, key, delimiter = ",", position_file;
  std::string profile = "standard";
  std::string fabric = "auto";
  int64_t count = 0;
  double until_idle_s = 0;
  bool follow = false;
  bool positions = false;
  std::string on_gap = "stop";
  std::string report_as;
};

// Goes on behind what retention has deleted, where that stopped a shard; false if it stopped none.
bool SkipGap(consumer::Consumer& consumer) {
  bool skipped = false;
  for (int32_t shard : consumer.shards()) {
    const consumer::ShardStatus status = consumer.shard_status(shard);
    if (!IsOutOfRange(status.error)) continue;
    const auto from = consumer.position(shard);
    const auto to = status.first_available;
    std::fprintf(stderr, "tailcast: shard %d: messages%s%s are not kept any more; going on %s\n",
                 shard, from ? (" from " + std::to_string(from->number)).c_str() : "",
                 to ? (" to " + std::to_string(to->number - 1)).c_str() : "",
                 to ? ("at " + to->ToString()).c_str() : "where they begin");
    const auto start = to ? consumer::StartPoint::At(*to) : consumer::StartPoint::Beginning();
    if (Status s = consumer.Seek(shard, start); !s.ok()) return false;
    skipped = true;
  }
  return skipped;
}

// What an empty poll may mean, of all shards.
struct Silence {
  // A shard is still being looked for, or has bytes that are on their way: then it is not idle.
  bool busy = false;
  // Else it may be that more was written than is known.
  bool end_is_known = true;
  // What the cell says it has and can't give, or lacks; empty if there is nothing of the kind.
  std::string unreadable;
};

// Whether it is on its way, of one shard.
bool IsBusy(const consumer::ShardStatus& status) {
  return status.trouble.ok() &&
         (status.state == consumer::ShardState::kLocating || status.lag_bytes > 0 ||
          !status.missing.ok() || status.begins_beyond);
}

// What can't be read of one shard; `to_come`: it is to begin at this message, and has not. Empty:
// nothing.
std::string UnreadableOf(const consumer::ShardStatus& status,
                         const std::optional<stream::Position>& position,
                         std::optional<int64_t> to_come) {
  if (!status.trouble.ok() && status.state == consumer::ShardState::kLocating) {
    return "where it begins can't be found: " + status.trouble.message();
  }
  if (!status.trouble.ok()) {
    return std::to_string(status.lag_bytes) +
           " bytes more are there and can't be read: " + status.trouble.message();
  }
  if (status.begins_beyond) {
    return "it is to begin at message " + std::to_string(position->number) +
           ", which is not in this cell: it has " + std::to_string(*status.begins_beyond) +
           " so far";
  }
  if (to_come) {
    return "it is to begin at message " + std::to_string(*to_come) +
           ", which is not in this cell so far";
  }
  if (!status.missing.ok()) return "more was written: " + status.missing.message();
  if (!status.end_is_known) return "whether more was written is not known";
  return "";
}

Silence Understand(const consumer::Consumer& consumer, const consumer::Options& options) {
  Silence silence;
  const Status contact = consumer.contact();
  silence.busy = !contact.ok();
  for (int32_t shard : consumer.shards()) {
    const consumer::ShardStatus status = consumer.shard_status(shard);
    silence.busy |= IsBusy(status);
    silence.end_is_known &= status.end_is_known;
    const auto position = consumer.position(shard);
    const bool by_number =
        options.start.kind == consumer::StartPoint::Kind::kNumber &&
        std::none_of(options.resume.begin(), options.resume.end(),
                     [shard](const stream::Position& p) { return p.shard == shard; });
    std::optional<int64_t> to_come;
    if (by_number && !position && status.state == consumer::ShardState::kWaiting) {
      to_come = options.start.number;
    }
    const std::string what = UnreadableOf(status, position, to_come);
    if (what.empty()) continue;
    silence.unreadable += (silence.unreadable.empty() ? "" : "; ") +
                          stream::ShardId{consumer.stream(), shard}.ToString() + ": " + what;
  }
  if (!contact.ok()) {
    silence.unreadable = contact.message() + ": whether there is more is not known";
  }
  return silence;
}

// Where the shards begin: `from`, and the positions of the file before those.
Status SetStart(const ConsumeOptions& options, consumer::Options& out) {
  bool given = false;
  for (const std::string& text : options.from) {
    const auto start = consumer::StartPoint::Parse(text);
    if (!start.ok()) return start.status().WithContext("--from");
    if (start->kind == consumer::StartPoint::Kind::kPosition) {
      for (const stream::Position& other : out.resume) {
        if (other.shard == start->position.shard) {
          return InvalidArgumentError("--from: two positions of shard " +
                                      std::to_string(other.shard));
        }
      }
      if (options.shard >= 0 && start->position.shard != options.shard) {
        return InvalidArgumentError("--from " + text + " is a position of shard " +
                                    std::to_string(start->position.shard) + ", not of --shard " +
                                    std::to_string(options.shard));
      }
      out.resume.push_back(start->position);
    } else if (std::exchange(given, true)) {
      return InvalidArgumentError(
          "--from: more than one is for positions, one for each shard, and one place for the "
          "others");
    } else {
      out.start = *start;
    }
  }
  if (options.position_file.empty()) return OkStatus();
  TAILCAST_ASSIGN_OR_RETURN(const std::vector<stream::Position> saved,
                            ReadPositionFile(options.position_file));
  for (const stream::Position& position : saved) {
    if (options.shard >= 0 && position.shard != options.shard) {
      return InvalidArgumentError("--position-file " + options.position_file +
                                  " has a position of shard " + std::to_string(position.shard) +
                                  ", which would be lost with --shard " +
                                  std::to_string(options.shard) + "; use another file");
    }
    std::erase_if(out.resume, [&](const auto& other) { return other.shard == position.shard; });
    out.resume.push_back(position);
  }
  // So that it is known now whether it can be written.
  return WritePositionFile(options.position_file, saved).WithContext("--position-file");
}

// Where shards end that `to` names, and the others: `rest`.
struct Ends {
  consumer::EndPoint rest;
  std::map<int32_t, consumer::EndPoint> shards;
  const consumer::EndPoint& Of(int32_t shard) const {
    const auto it = shards.find(shard);
    return it != shards.end() ? it->second : rest;
  }
};

Result<Ends> FindEnds(const ConsumeOptions& options, const consumer::Options& consumer_options) {
  Ends ends;
  bool given = false;
  for (const std::string& text : options.to) {
    if (text == "end") {
      if (options.to.size() > 1) return InvalidArgumentError("--to end is for all shards");
      TAILCAST_ASSIGN_OR_RETURN(const auto numbers, EndsNow(consumer_options));
      for (const auto& [shard, number] : numbers) {
        ends.shards[shard] = consumer::EndPoint::BeforeNumber(number);
      }
      return ends;
    }
    const auto end = consumer::EndPoint::Parse(text, ReadWallClock());
    if (!end.ok()) return end.status().WithContext("--to");
    if (end->kind == consumer::EndPoint::Kind::kPosition) {
      const int32_t shard = end->position.shard;
      if (options.shard >= 0 && shard != options.shard) {
        return InvalidArgumentError("--to " + text + " is a position of shard " +
                                    std::to_string(shard) + ", not of --shard " +
                                    std::to_string(options.shard));
      }
      if (!ends.shards.emplace(shard, *end).second) {
        return InvalidArgumentError("--to: two positions of shard " + std::to_string(shard));
      }
    } else if (std::exchange(given, true)) {
      return InvalidArgumentError(
          "--to: more than one is for positions, one for each shard, and one place for the others");
    } else {
      ends.rest = *end;
    }
  }
  return ends;
}

// InvalidArgument: nothing can lie between.
Status CheckOrder(const consumer::StartPoint& start, const consumer::EndPoint& end) {
  using Start = consumer::StartPoint::Kind;
  using End = consumer::EndPoint::Kind;
  const bool numbers = start.kind == Start::kNumber && end.kind == End::kNumber;
  const bool times = start.kind == Start::kTime && end.kind == End::kTime;
  if (!(numbers && end.number < start.number) && !(times && end.time < start.time)) {
    return OkStatus();
  }
  return InvalidArgumentError("--to lies before --from: nothing is to be read");
}

// InvalidArgument: an end is not in what is read.
Status CheckEnds(const consumer::Consumer& consumer, const Ends& ends) {
  for (const auto& [shard, end] : ends.shards) {
    if (end.kind != consumer::EndPoint::Kind::kPosition) continue;
    const std::string what = "--to " + end.position.ToString();
    const auto& shards = consumer.shards();
    if (std::find(shards.begin(), shards.end(), shard) == shards.end()) {
      return InvalidArgumentError(what + ": the stream has no shard " + std::to_string(shard));
    }
    const stream::StreamId& stream = consumer.stream();
    if (end.position.incarnation != stream.incarnation) {
      return InvalidArgumentError(what + " is a position of another stream than this '" +
                                  stream.name + "', or of one that was deleted since");
    }
  }
  return OkStatus();
}

// Whether every shard has come to its end, as far as is known without another message.
bool AllEnded(const consumer::Consumer& consumer, const Ends& ends,
              const std::set<int32_t>& ended) {
  const auto& shards = consumer.shards();
  return std::all_of(shards.begin(), shards.end(), [&](int32_t shard) {
    if (ended.contains(shard)) return true;
    const consumer::ShardStatus status = consumer.shard_status(shard);
    const consumer::EndPoint& end = ends.Of(shard);
    const auto position = consumer.position(shard);
    // A shard that has no files has no messages.
    if (!position && status.state != consumer::ShardState::kWaiting) return false;
    const int64_t next = position ? position->number : 0;
    if (end.kind != consumer::EndPoint::Kind::kTime) return end.IsReached(next, WallTime());
    return !status.ready && status.lag_bytes == 0 && !status.next_is_known && status.missing.ok() &&
           status.trouble.ok() && end.IsReached(next, status.as_of);
  });
}

Result<std::optional<MessageFormat>> FormatOf(const ConsumeOptions& options) {
  std::optional<MessageFormat> format;
  if (options.format.empty()) {
    if (!options.key.empty()) return InvalidArgumentError("--key is for --format");
    return format;
  }
  TAILCAST_ASSIGN_OR_RETURN(format, MessageFormat::Parse(options.format));
  if (options.key.empty()) {
    if (!format->wants_key()) return format;
    return InvalidArgumentError("--format: say with --key FIELD what the key of a message is");
  }
  TAILCAST_ASSIGN_OR_RETURN(MessageKey key, MessageKey::Parse(options.key, options.delimiter[0]));
  format->set_key(std::move(key));
  return format;
}

// The consumer that the options ask for, without its start.
Result<consumer::Options> ConsumerOptionsOf(const ConsumeOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(const cell::Profile profile, cell::ParseProfile(options.profile));
  consumer::Options out;
  TAILCAST_ASSIGN_OR_RETURN(out.cell, options.cell.Find());
  out.stream = options.stream;
  out.report_as = options.report_as;
  if (options.shard >= 0) out.shards = {options.shard};
  out.profile = profile == cell::Profile::kLowLatency ? consumer::Profile::kLowLatency
                                                      : consumer::Profile::kDefault;
  out.fabric = options.fabric == "shm"     ? consumer::FabricPreference::kShm
               : options.fabric == "tcp"   ? consumer::FabricPreference::kTcp
               : options.fabric == "verbs" ? consumer::FabricPreference::kVerbs
                                           : consumer::FabricPreference::kAuto;
  return out;
}

bool HasEnd(const ConsumeOptions& options) {
  return options.count > 0 || options.until_idle_s > 0 || !options.to.empty();
}

// What was asked for is not all there: a script must not take it for that.
Status InterruptedBeforeEnd() {
  return CancelledError("interrupted before it came to the end that was asked for");
}

int Consume(ConsumeOptions& options) {
  const auto framing = stream::ParseFraming(options.framing);
  if (!framing.ok()) return Fail(framing.status());
  auto format = FormatOf(options);
  if (!format.ok()) return Fail(format.status());
  if ((options.count > 0) + (options.until_idle_s > 0) + options.follow > 1) {
    return Fail(InvalidArgumentError("give one of --count, --until-idle and --follow"));
  }
  consumer::Options start;
  if (Status set = SetStart(options, start); !set.ok()) return Fail(set);
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  auto consumer_options = ConsumerOptionsOf(options);
  if (!consumer_options.ok()) return Fail(consumer_options.status());
  consumer_options->start = start.start;
  consumer_options->resume = start.resume;

  CatchInterrupts();
  const auto ends = FindEnds(options, *consumer_options);
  if (!ends.ok()) return Fail(ends.status());
  if (Status order = CheckOrder(start.start, ends->rest); !order.ok()) return Fail(order);
  if (Interrupted() && HasEnd(options)) return Fail(InterruptedBeforeEnd());
  auto consumer = consumer::Consumer::Open(*consumer_options);
  if (!consumer.ok()) return Fail(consumer.status());
  if (Status checked = CheckEnds(**consumer, *ends); !checked.ok()) return Fail(checked);

  int64_t got = 0;
  MessageOutput output(*framing, std::move(*format), options.position_file, start.resume);
  std::set<int32_t> ended;  // shards that came to --to
  Status error;
  MonotonicTime last = ReadMonotonicClock();
  bool done = false, complained = false, was_busy = false;
  while (!done && error.ok() && !Interrupted()) {
    const auto batch = (*consumer)->Poll(Duration::Millis(100));
    if (!batch.ok()) {
      if (options.on_gap == "skip" && IsOutOfRange(batch.status()) && SkipGap(**consumer)) continue;
      error = batch.status();
      if (IsOutOfRange(error) && options.on_gap != "skip") {
        error = OutOfRangeError(error.message() + " (--on-gap skip goes on there)");
      }
      break;
    }
    for (const consumer::Message& message : *batch) output.OnTaken(**consumer, message);
    for (const consumer::Message& message : *batch) {
      if (ended.contains(message.shard)) continue;
      if (ends->Of(message.shard).IsBefore(message)) {
        ended.insert(message.shard);
        continue;
      }
      error = output.Add(**consumer, message);
      if (!error.ok()) break;
      ++got;
      if (options.count > 0 && got == options.count) {
        done = true;
        break;
      }
    }
    if (const auto wrote = output.Flush(); !wrote.ok()) {
      error = wrote.status();
    } else if (*wrote != MessageOutput::Written::kAll) {
      done = *wrote == MessageOutput::Written::kReaderGone;
    }
    if (Status saved = output.SavePositions(**consumer); !saved.ok() && error.ok()) error = saved;
    if (!options.to.empty() && AllEnded(**consumer, *ends, ended)) done = true;
    const MonotonicTime now = ReadMonotonicClock();
    if (!batch->empty()) {
      last = now;
      complained = false;
      continue;
    }
    // What it waited for may be there from now on, and is to be read first.
    const Silence silence = Understand(**consumer, *consumer_options);
    if (std::exchange(was_busy, silence.busy) && !silence.busy) last = now;
    const bool wait = silence.busy || !silence.end_is_known;
    const double idle_s = (now - last).seconds() - (wait ? kBusyMax.seconds() : 0);
    if (options.until_idle_s > 0 && idle_s >= options.until_idle_s) {
      done = true;
      if (!silence.unreadable.empty()) error = UnavailableError(silence.unreadable);
    } else if (!complained && now - last > kComplainAfter) {
      complained = true;
      if (!silence.unreadable.empty()) {
        std::fprintf(stderr, "tailcast: %s; going on to try\n", silence.unreadable.c_str());
      }
    }
  }
  if (Status saved = output.SavePositions(**consumer); !saved.ok() && error.ok()) error = saved;
  if (!done && error.ok() && HasEnd(options)) error = InterruptedBeforeEnd();
  if (const int64_t headed = output.without_headers(); headed > 0) {
    std::fprintf(stderr,
                 "tailcast: %lld %s headers, which --framing leaves out and --format shows\n",
                 static_cast<long long>(headed), headed == 1 ? "message has" : "messages have");
  }
  if (options.positions) {
    for (const stream::Position& position : output.Positions(**consumer)) {
      std::fprintf(stderr, "%s\n", position.ToString().c_str());
    }
  }
  return error.ok() ? kExitDone : Fail(error);
}

}  // namespace

void AddConsume(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("consume", "Write a stream's messages to standard output");
  auto options = std::make_shared<ConsumeOptions>();
  options->cell.Add(command, true);
  command->add_option("--stream", options->stream, "Stream to read")->required();
  command
      ->add_option("--shard", options->shard, "One shard; default: all, interleaved as they come")
      ->check(ShardNumber());
  command
      ->add_option("--framing", options->framing,
                   "lines or length, as for produce; both leave headers out")
      ->capture_default_str();
  command
      ->add_option("--from", options->from,
                   "beginning (the default), end, time:T, number:N or a position; T is UTC, as "
                   "2013-01-31T12:00:00Z, microseconds since 1970, or a while ago, as -5m. May be "
                   "given again for positions, one for each shard")
      ->take_all();
  command
      ->add_option("--to", options->to,
                   "End before this: time:T, number:N, a position, or end: what is there now. May "
                   "be given again for positions, one for each shard")
      ->take_all();
  command->add_option("--position-file", options->position_file,
                      "Go on where this file says, and keep it up to date with what was written; "
                      "positions in it come before --from");
  command
      ->add_option("--format", options->format,
                   "json, or a template, as '{time} {shard}/{number} {key}: {payload}', in "
                   "place of --framing; also {stream}, {position}, {time_us}, {bytes}, {headers}, "
                   "{header.NAME}")
      ->excludes(command->get_option("--framing"));
  command->add_option("--key", options->key, "What {key} is, as for produce; JSON has it, too");
  command->add_option("--delimiter", options->delimiter, "Of the fields of --key")
      ->check(OneCharacter())
      ->capture_default_str();
  command
      ->add_option("--profile", options->profile,
                   "standard: poll every 100 ms; low-latency: doorbells")
      ->capture_default_str();
  command->add_option("--fabric", options->fabric, "How cache memory is read")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs"}))
      ->capture_default_str();
  command
      ->add_option("--on-gap", options->on_gap,
                   "When what comes next is not kept any more: stop with an error, or skip it and "
                   "say so")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  command->add_option("--count", options->count, "End after this many messages")
      ->check(CountAboveZero());
  command
      ->add_option("--until-idle", options->until_idle_s,
                   "End when nothing came for this many seconds")
      ->check(AboveZero());
  command->add_flag("--follow", options->follow, "Go on until Ctrl-C (the default)");
  command->add_flag("--positions", options->positions,
                    "At the end, write the position behind the last message of each shard to "
                    "standard error: `--from` of the next run");
  command
      ->add_option("--report-as", options->report_as,
                   "Name under which `tailcast status` shows this consumer, and how far it is; "
                   "default: it does not")
      ->check(UserName());
  options->metrics.Add(command);
  AddTraceDir(command);
  command->callback([&action, options] { action = [options] { return Consume(*options); }; });
}

}  // namespace tailcast::app
