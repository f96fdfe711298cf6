// tailcast tail: files that grow become the messages of a stream, exactly once.
#include "tailcast/app/tail_command.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tailcast/app/durable_file.h"
#include "tailcast/app/file_lock.h"
#include "tailcast/app/file_system.h"
#include "tailcast/app/followed_path.h"
#include "tailcast/app/publish.h"
#include "tailcast/app/source_cell.h"
#include "tailcast/app/tail_ledger.h"
#include "tailcast/cell/process_config.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/producer/producer.h"

namespace tailcast::app {
namespace {

constexpr Duration kSaveInterval = Duration::Seconds(1);
constexpr Duration kReadTimeout = Duration::Seconds(30);

struct TailOptions {
  CellOptions cell;
  MetricsOption metrics;
  std::string stream, position_file;
  std::vector<std::string> files;
  int32_t shard = 0;
  std::string from = "beginning";
  std::string profile = "standard";
  int64_t message_bytes_max = 16 << 20;
  double until_idle_s = 0;
  bool takeover = false;
  bool quiet = false;
};

// What became of the messages of the shard, told on the producer's thread.
struct Outcome {
  std::atomic<int64_t> durable_byte{0}, messages{0}, failed{0}, unknown{0};
  std::mutex mutex;
  Status error;

  void OnAck(const producer::Ack& ack, int64_t byte, int64_t bytes) {
    if (ack.outcome == producer::AckOutcome::kDurable && ack.position.byte == byte) {
      durable_byte = byte + bytes;
      ++messages;
      return;
    }
    if (ack.outcome != producer::AckOutcome::kDurable) {
      ++(ack.outcome == producer::AckOutcome::kFailed ? failed : unknown);
    }
    const std::lock_guard lock(mutex);
    if (!error.ok()) return;
    error = ack.outcome == producer::AckOutcome::kDurable
                ? FailedPreconditionError("the shard has messages of somebody else")
                : ack.error;
  }
  Status Error() {
    const std::lock_guard lock(mutex);
    return error;
  }
};

Result<std::optional<TailState>> ReadState(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgumentError(path + " is a folder");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::optional<TailState>();
  if (!in) return ErrnoStatus(errno != 0 ? errno : EIO, "read " + path);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  auto state = TailState::Parse(text);
  if (!state.ok()) return state.status().WithContext(path);
  return std::optional<TailState>(std::move(*state));
}

// The payload of the message of that number, of the stream's source; nullopt: it has headers, so it
// is nobody's line of a file.
Result<std::optional<std::string>> ReadLine(const std::string& cell, const std::string& stream,
                                            int32_t shard, int64_t number) {
  consumer::Options options;
  options.cell = cell;
  options.stream = stream;
  options.shards = {shard};
  options.start = consumer::StartPoint::AtNumber(number);
  options.show_metrics = false;
  TAILCAST_ASSIGN_OR_RETURN(auto consumer, consumer::Consumer::Open(options));
  const MonotonicTime end = ReadMonotonicClock() + kReadTimeout;
  while (ReadMonotonicClock() < end && !Interrupted()) {
    TAILCAST_ASSIGN_OR_RETURN(const auto batch, consumer->Poll(Duration::Millis(100)));
    if (batch.empty()) continue;
    const consumer::Message& message = batch.front();
    if (!message.headers.empty()) return std::optional<std::string>();
    return std::optional<std::string>(message.payload);
  }
  return UnavailableError("message " + std::to_string(number) + " of shard " +
                          std::to_string(shard) + " could not be read");
}

constexpr std::array<const char*, 3> kPositionFileEndings = {"", ".lock", ".part"};

// Where it is in the end, links followed.
std::filesystem::path RealPath(const std::string& path) {
  std::error_code error;
  auto real = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? std::filesystem::absolute(path).lexically_normal() : real;
}

// What may lie beside a file without being one of it, as FileSystem::Rotated names it.
std::set<std::string> OthersThan(const std::string& path, const std::vector<std::string>& paths,
                                 const std::string& position_file) {
  std::set<std::string> others;
  for (const char* const ending : kPositionFileEndings) {
    others.insert(RealPath(position_file + ending).string());
  }
  for (const std::string& other : paths) {
    if (other != path) others.insert(RealPath(other).string());
  }
  return others;
}

class Tail {
 public:
  Tail(const TailOptions& options, producer::Producer& producer, std::string cell)
      : options_(options),
        producer_(producer),
        cell_(std::move(cell)),
        interval_(options.profile == "low-latency" ? Duration::Millis(10) : Duration::Millis(100)) {
  }

  Status CloseProducer() { return CloseUntilInterrupted(producer_, outcome_->messages); }

  // Where the stream and the position file say that the files stand.
  Status Begin(const std::optional<TailState>& state, const std::vector<std::string>& paths) {
    TAILCAST_ASSIGN_OR_RETURN(const stream::Position end,
                              producer_.durable_position(options_.shard));
    if (state) {
      if (state->incarnation != end.incarnation) {
        return InvalidArgumentError(options_.position_file + " is of another stream than this '" +
                                    options_.stream +
                                    "', or that was deleted and created again since; remove it "
                                    "to begin anew");
      }
      state_ = *state;
    } else if (end.number > 0) {
      Say("shard " + std::to_string(options_.shard) + " has " + std::to_string(end.number) +
          (end.number == 1 ? " message" : " messages") +
          ", and no position file says of what: files begin at their " + options_.from);
    }
    state_.incarnation = end.incarnation;
    auto recovered = TailLedger::Recover(state_.shards[options_.shard], end.byte);
    if (!recovered.ok()) return recovered.status().WithContext(options_.position_file);
    ledger_ = std::move(*recovered);
    outcome_->durable_byte = published_byte_ = end.byte;
    TAILCAST_RETURN_IF_ERROR(CheckEnd(end));
    for (const std::string& path : paths) {
      std::vector<FilePlace> known;
      for (const FilePlace& place : ledger_.Places()) {
        if (place.key.path == path) known.push_back(place);
      }
      paths_.push_back(std::make_unique<FollowedPath>(
          *files_, path,
          FollowedPath::Options{.message_bytes_max = options_.message_bytes_max,
                                .from_end = options_.from == "end",
                                .others = OthersThan(path, paths, options_.position_file)},
          [this](const std::string& text) { Say(text); }));
      TAILCAST_RETURN_IF_ERROR(paths_.back()->Begin(known, ReadMonotonicClock()));
      // So that it holds whenever this ends, published or not.
      (void)paths_.back()->Enter(ledger_, std::nullopt);
    }
    TAILCAST_RETURN_IF_ERROR(Save());
    for (const auto& path : paths_) {
      for (const FilePlace& place : path->Places()) {
        if (!options_.quiet) Say(path->path() + ": from byte " + std::to_string(place.offset));
      }
    }
    return OkStatus();
  }

  Status Run() {
    MonotonicTime last = ReadMonotonicClock(), saved = last;
    while (!Interrupted()) {
      MonotonicTime now = ReadMonotonicClock();
      TAILCAST_ASSIGN_OR_RETURN(const bool more, Round(now));
      TAILCAST_RETURN_IF_ERROR(outcome_->Error());
      TAILCAST_RETURN_IF_ERROR(producer_.status());
      if (now - saved >= kSaveInterval) {
        saved = now;
        if (ledger_.OnDurable(outcome_->durable_byte)) TAILCAST_RETURN_IF_ERROR(Save());
      }
      if (more) {
        last = now;
        continue;
      }
      const bool idle =
          std::all_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->idle(); });
      if (options_.until_idle_s > 0 && idle && (now - last).seconds() >= options_.until_idle_s) {
        return OkStatus();
      }
      Sleep(interval_);
    }
    return OkStatus();
  }

  // After the producer's end.
  Status End() {
    // Said first: whether that can be kept or not, so much is in the stream.
    if (!options_.quiet || outcome_->failed + outcome_->unknown > 0) {
      Say((Interrupted() ? "interrupted: " : "") +
          OutcomeText(outcome_->messages, outcome_->failed, outcome_->unknown));
    }
    for (const auto& path : paths_) {
      if (const int64_t bytes = path->unfinished_bytes(); bytes > 0 && !options_.quiet) {
        Say(path->path() + ": " + std::to_string(bytes) + " bytes of an unfinished line wait");
      }
    }
    (void)ledger_.OnDurable(outcome_->durable_byte);
    return Save();
  }

 private:
  static void Say(const std::string& text) { std::fprintf(stderr, "tailcast: %s\n", text.c_str()); }

  // The shard's last message is what the position file says it is. Otherwise somebody else has
  // published to it, and where the files stand can't be told.
  Status CheckEnd(const stream::Position& end) {
    if (!ledger_.last()) return OkStatus();
    for (const FilePlace& place : ledger_.Places()) {
      if (place.key != *ledger_.last()) continue;
      TAILCAST_ASSIGN_OR_RETURN(const std::optional<std::string> line,
                                ReadLine(cell_, options_.stream, options_.shard, end.number - 1));
      if (line && FollowedPath::EndsWith(*files_, place, *line).value_or(true)) return OkStatus();
      return FailedPreconditionError(
          "the last message of shard " + std::to_string(options_.shard) + " is not what " +
          place.key.path + " has before byte " + std::to_string(place.offset) +
          ": somebody else publishes to that shard. Give `tailcast tail` one of its own, or remove "
          "the position file to publish the files anew");
    }
    return OkStatus();
  }

  // Publishes what is new. True: there may be more at once.
  Result<bool> Round(MonotonicTime now) {
    std::vector<FollowedPath::Piece> pieces;
    bool keep = false;
    for (const auto& path : paths_) {
      path->Look(now);
      auto piece = path->Read(now);
      keep |= path->Enter(ledger_, piece);
      if (piece) pieces.push_back(std::move(*piece));
    }
    if (keep) {
      (void)ledger_.OnDurable(outcome_->durable_byte);
      TAILCAST_RETURN_IF_ERROR(Save());
    }
    for (const FollowedPath::Piece& piece : pieces) {
      TAILCAST_ASSIGN_OR_RETURN(const bool taken, Publish(piece.bytes));
      // What follows has its place behind what was not taken.
      if (!taken) return false;
    }
    return !pieces.empty();
  }

  // False: interrupted before all of it was taken; nothing more may be published.
  Result<bool> Publish(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      const std::string_view line = bytes.substr(0, newline == bytes.npos ? newline : newline + 1);
      bytes.remove_prefix(line.size());
      const auto size = static_cast<int64_t>(line.size());
      const auto on_ack = [outcome = outcome_, byte = published_byte_,
                           size](const producer::Ack& ack) { outcome->OnAck(ack, byte, size); };
      TAILCAST_ASSIGN_OR_RETURN(const bool taken,
                                PublishUntilInterrupted(producer_, line, on_ack, options_.shard));
      if (!taken) return false;  // started again, it comes
      published_byte_ += size;
    }
    return true;
  }

  Status Save() {
    state_.shards[options_.shard] = ledger_.runs();
    return ReplaceFile(options_.position_file, state_.ToText());
  }

  const TailOptions& options_;
  producer::Producer& producer_;
  const std::string cell_;
  const Duration interval_;
  const std::unique_ptr<FileSystem> files_ = FileSystem::Real();
  TailState state_;
  TailLedger ledger_;
  std::vector<std::unique_ptr<FollowedPath>> paths_;
  int64_t published_byte_ = 0;
  const std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
};

// Absolute. InvalidArgument: the bytes of one would come twice.
Result<std::vector<std::string>> PathsOf(const std::vector<std::string>& files,
                                         const std::string& position_file) {
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    if (file.find('\n') != std::string::npos) {
      return InvalidArgumentError("a file's name has a newline");
    }
    const std::filesystem::path real = RealPath(file);
    for (const char* const ending : kPositionFileEndings) {
      if (real == RealPath(position_file + ending)) {
        return InvalidArgumentError(file + " is the position file, or written beside it");
      }
    }
    std::error_code ignored;
    for (const std::string& before : paths) {
      const std::filesystem::path other = RealPath(before);
      if (real == other || std::filesystem::equivalent(real, other, ignored)) {
        return InvalidArgumentError(file + " is given twice");
      }
      if (real.parent_path() != other.parent_path()) continue;
      const std::string a = real.filename().string(), b = other.filename().string();
      if (IsRotatedName(a, b) || IsRotatedName(b, a)) {
        return InvalidArgumentError(
            (a.size() > b.size() ? a + " is what " + b : b + " is what " + a) +
            " may be rotated to, which is read with it; give that only");
      }
    }
    paths.push_back(std::filesystem::absolute(file).lexically_normal().string());
  }
  return paths;
}

int RunTail(TailOptions& options) {
  const auto profile = cell::ParseProfile(options.profile);
  if (!profile.ok()) return Fail(profile.status());
  const auto paths = PathsOf(options.files, options.position_file);
  if (!paths.ok()) return Fail(paths.status());
  if (Status started = options.metrics.Start(); !started.ok()) return Fail(started);
  const auto source = AtSource(options.cell, options.stream);
  if (!source.ok()) return Fail(source.status());
  const auto cell = source->Find();
  if (!cell.ok()) return Fail(cell.status());
  producer::Options producer_options;
  producer_options.cell = *cell;
  producer_options.stream = options.stream;
  producer_options.shards = {options.shard};
  producer_options.profile = *profile == cell::Profile::kLowLatency ? producer::Profile::kLowLatency
                                                                    : producer::Profile::kDefault;
  producer_options.takeover = options.takeover;
  producer_options.message_bytes_max = options.message_bytes_max;
  producer_options.on_trouble = [](const Status& why) {
    std::fprintf(stderr, "tailcast: %s; trying again\n", why.message().c_str());
  };
  const std::string lock_path = options.position_file + ".lock";
  const auto lock = FileLock::Take(lock_path, [&](const std::string&) {
    return "another `tailcast tail` runs with this position file (" + lock_path + ")";
  });
  if (!lock.ok()) return Fail(lock.status());
  const auto state = ReadState(options.position_file);
  if (!state.ok()) return Fail(state.status());
  const auto files = FileSystem::Real();
  for (const std::string& path : *paths) {
    const auto info = files->Stat(path);
    if (info.ok() && !info->regular) return Fail(FollowedPath::NoRegularFile(path));
  }
  // Now the shard may be taken from who has it.
  auto producer = producer::Producer::Open(producer_options);
  if (!producer.ok()) return Fail(producer.status());
  CatchInterrupts();
  Tail tail(options, **producer, *cell);
  if (Status begun = tail.Begin(*state, *paths); !begun.ok()) return Fail(begun);
  Status status = tail.Run();
  const Status closed = tail.CloseProducer();
  if (status.ok()) status = closed;
  if (Status ended = tail.End(); status.ok()) status = ended;
  if (status.ok()) return kExitDone;
  // The stream is no more, or another one publishes to the shard.
  if (IsNotFound(status) || IsFailedPrecondition(status)) return Fail(status);
  return Fail(Status(status.code(),
                     status.message() + "; started again, it goes on where the stream ends"));
}

}  // namespace

void AddTail(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "tail", "Publish each line of files that grow, through rotation and restarts");
  auto options = std::make_shared<TailOptions>();
  options->cell.Add(command, false);
  command->add_option("FILE", options->files, "Files to follow; one need not be there yet")
      ->required();
  command->add_option("--stream", options->stream, "Stream to publish to")->required();
  command
      ->add_option("--position-file", options->position_file,
                   "Where it is kept how far each file is in the stream. Started again with it, "
                   "each line is published exactly once")
      ->required();
  command
      ->add_option("--shard", options->shard,
                   "Shard of the stream, to which nobody else may publish")
      ->check(ShardNumber())
      ->capture_default_str();
  command
      ->add_option("--from", options->from,
                   "Where files begin that are there at the first start: beginning or end")
      ->check(CLI::IsMember({"beginning", "end"}))
      ->capture_default_str();
  command
      ->add_option("--profile", options->profile,
                   "standard: look every 100 ms and flush as often; low-latency: every 10 and 2 ms")
      ->capture_default_str();
  command
      ->add_option("--message-bytes-max", options->message_bytes_max,
                   "A longer line is cut into messages of this size")
      ->check(CLI::Range(int64_t{1}, int64_t{256} << 20))
      ->capture_default_str();
  command
      ->add_option("--until-idle", options->until_idle_s,
                   "End when nothing came for this many seconds; default: Ctrl-C")
      ->check(AboveZero());
  command->add_flag("--takeover", options->takeover,
                    "Take the shard over from a producer that is alive, or may be");
  command->add_flag("--quiet", options->quiet, "Say nothing but what is wrong or lost");
  options->metrics.Add(command);
  command->callback([&action, options] { action = [options] { return RunTail(*options); }; });
}

}  // namespace tailcast::app
