// tailcast cache stat|scan|locate|dump: a look inside the caches of a cell. It makes the calls;
// src/inspect decides what they say. Nothing is written.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/base/nearest.h"
#include "tailcast/base/scope.h"
#include "tailcast/cache/server.h"
#include "tailcast/cache/wire.h"
#include "tailcast/inspect/contents.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/inspect/locate.h"
#include "tailcast/inspect/scan.h"
#include "tailcast/inspect/stat.h"
#include "tailcast/memcached/replica_names.h"
#include "tailcast/proto/cache.pb.h"
#include "tailcast/stream/message_ids.h"

namespace tailcast::app {
namespace {

using inspect::Instance;
using inspect::KeyName;

constexpr Duration kCallTimeout = Duration::Seconds(2);
constexpr uint32_t kPageBytes = 1u << 20;

struct CacheOptions {
  CellOptions cell;
  std::string instance;  // empty: both
  std::string format = "text";
  std::string key;               // locate, dump
  std::string out;               // dump
  std::string replica;           // scan
  std::string stream;            // scan
  std::optional<int32_t> shard;  // scan
  std::optional<int64_t> seq;    // scan
  size_t limit = 100;            // scan

  bool Json() const { return format == "json"; }
  bool Shows(Instance which) const {
    return instance.empty() || instance == inspect::InstanceName(which);
  }
};

// A cell and the rings of its caches.
struct Caches {
  std::unique_ptr<CellSession> session;
  cache::RingConfig data, metadata;

  static Result<Caches> Open(const CacheOptions& options) {
    Caches caches;
    TAILCAST_ASSIGN_OR_RETURN(caches.session, CellSession::Open(options.cell));
    const cell::CellView& view = caches.session->client().view();
    caches.data = cell::DataRing(view);
    caches.metadata = cell::MetadataRing(view);
    const auto& replicas = caches.data.replicas;
    if (replicas.empty()) {
      return FailedPreconditionError("cell " + view.cell() +
                                     " has no cache processes; its configuration names none in "
                                     "`caches`");
    }
    if (memcached::IsReplicaName(replicas.front().name)) {
      return FailedPreconditionError("the caches of cell " + view.cell() +
                                     " are memcached servers, into which this can't look; ask them "
                                     "with the tools of memcached");
    }
    return caches;
  }
  const cache::RingConfig& ring(Instance instance) const {
    return instance == Instance::kData ? data : metadata;
  }

  // Calls `method` of replicas, given by their places in the ring, all at once. One without an
  // address is an error.
  template <typename Reply>
  std::vector<Result<Reply>> Call(Instance instance, const char* method,
                                  const std::vector<size_t>& replicas,
                                  const std::vector<std::string>& requests) const {
    const char* const service =
        instance == Instance::kData ? cache::kDataService : cache::kMetadataService;
    std::vector<Result<Reply>> replies;
    std::vector<std::unique_ptr<rpc::Client>> clients;
    size_t waiting = 0;
    const Scope scope;
    for (size_t i = 0; i < replicas.size(); ++i) {
      const cache::Replica& replica = ring(instance).replicas[replicas[i]];
      replies.emplace_back(UnavailableError(replica.name + " has not registered"));
      if (replica.rpc_address.empty()) continue;
      ++waiting;
      clients.push_back(session->connector().MakeClient(replica.rpc_address, ""));
      clients.back()->Call(std::string("/") + service + "/" + method, requests[i], kCallTimeout,
                           scope.Bind([&, i](Result<std::string> bytes) {
                             --waiting;
                             if (bytes.ok()) {
                               replies[i] = rpc::Parse<Reply>(*bytes);
                             } else {
                               replies[i] = bytes.status();
                             }
                           }));
    }
    session->Until([&] { return waiting == 0; });
    return replies;
  }

  inspect::LocateReport Locate(const inspect::Wanted& wanted) const {
    v1::CacheLocateRequest request;
    cache::wire::AppendKey(*request.mutable_key(), wanted.key);
    const std::vector<size_t> owners = inspect::OwnersOf(ring(wanted.instance), wanted.key);
    const std::vector<std::string> requests(owners.size(), request.SerializeAsString());
    return inspect::Compare(
        wanted, ring(wanted.instance),
        Call<v1::CacheLocateReply>(wanted.instance, "Locate", owners, requests));
  }
};

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// ---- stat ----

int Stat(const CacheOptions& options) {
  const auto caches = Caches::Open(options);
  if (!caches.ok()) return Fail(caches.status());
  std::vector<inspect::StatReport> reports;
  bool answered = true;
  for (const Instance instance : {Instance::kData, Instance::kMetadata}) {
    if (!options.Shows(instance)) continue;
    const cache::RingConfig& ring = caches->ring(instance);
    std::vector<size_t> all;
    for (size_t i = 0; i < ring.replicas.size(); ++i) all.push_back(i);
    const std::vector<std::string> requests(all.size(), v1::CacheStatRequest().SerializeAsString());
    reports.push_back(inspect::MakeStat(
        instance, ring, caches->Call<v1::CacheStatReply>(instance, "Stat", all, requests)));
    answered = answered && reports.back().answered() > 0;
  }
  Print(options.Json() ? inspect::StatJson(reports) + "\n" : inspect::StatText(reports));
  return answered ? kExitDone : kExitFailed;
}

// ---- scan ----

// Adds all pages of these replicas.
void ScanReplicas(const Caches& caches, std::vector<size_t> replicas, inspect::ScanTable& table) {
  v1::CacheScanRequest request;
  request.set_bytes_max(kPageBytes);
  request.set_keys_only(table.instance() == Instance::kData);
  std::vector<std::string> requests(replicas.size(), request.SerializeAsString());
  while (!replicas.empty()) {
    const auto pages =
        caches.Call<v1::CacheScanReply>(table.instance(), "Scan", replicas, requests);
    std::vector<size_t> next;
    requests.clear();
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto replica = static_cast<uint16_t>(replicas[i]);
      const Status added = pages[i].ok() ? table.Add(replica, *pages[i]) : pages[i].status();
      if (!added.ok()) {
        table.Fail(replica, added);
      } else if (pages[i]->next_cursor() == 0) {
        table.End(replica);
      } else {
        request.set_cursor(pages[i]->next_cursor());
        requests.push_back(request.SerializeAsString());
        next.push_back(replicas[i]);
      }
    }
    replicas = std::move(next);
  }
}

int Scan(const CacheOptions& options) {
  const inspect::ScanFilter filter{options.stream, options.shard, options.seq};
  if (const Status fits = filter.Check(); !fits.ok()) return Fail(fits);
  const auto caches = Caches::Open(options);
  if (!caches.ok()) return Fail(caches.status());
  const cell::CellClient& client = caches->session->client();
  if (!filter.stream.empty()) {
    const auto stream = client.FindStream(filter.stream);
    if (!stream.ok()) return Fail(stream.status());
    if (filter.shard.has_value()) {
      const KeyName name{.stream = filter.stream, .shard = *filter.shard, .seq = 1};
      if (const Status fits = inspect::CheckShard(name, *stream); !fits.ok()) return Fail(fits);
    }
  }
  std::vector<size_t> all, asked;
  std::vector<std::string> names;
  for (size_t i = 0; i < caches->data.replicas.size(); ++i) {
    names.push_back(caches->data.replicas[i].name);
    all.push_back(i);
    if (options.replica.empty() || options.replica == names.back()) asked.push_back(i);
  }
  if (asked.empty()) {
    for (const v1::ProcessInfo& process : client.view().processes()) {
      if (process.role() != v1::ROLE_CACHE || process.name() != options.replica) continue;
      return Fail(FailedPreconditionError(
          "cache process '" + options.replica +
          "' is in no ring, so that it holds nothing; tailcast cache ring shows who is"));
    }
    return Fail(NotFoundError("no cache replica '" + options.replica + "' in cell " +
                              client.view().cell() + DidYouMean(options.replica, names)));
  }
  // Names are found by what all replicas know of files, whatever is listed.
  inspect::ScanTable files(Instance::kMetadata, caches->metadata);
  ScanReplicas(*caches, all, files);
  std::vector<std::unique_ptr<inspect::ScanTable>> own;
  std::vector<inspect::ScanTable*> tables;
  std::vector<const inspect::ScanTable*> shown;
  for (const Instance instance : {Instance::kData, Instance::kMetadata}) {
    if (!options.Shows(instance)) continue;
    if (instance == Instance::kMetadata && options.replica.empty()) {
      shown.push_back(&files);
      continue;
    }
    own.push_back(std::make_unique<inspect::ScanTable>(instance, caches->ring(instance)));
    ScanReplicas(*caches, asked, *own.back());
    tables.push_back(own.back().get());
    shown.push_back(own.back().get());
  }
  const auto& streams = client.view().streams();
  inspect::NameRows({streams.begin(), streams.end()}, filter, files, tables);
  bool whole = true;
  for (const inspect::ScanTable* table : shown) whole = whole && table->failures().empty();
  const WallTime now = ReadWallClock();
  if (options.Json()) {
    Print(inspect::ScanJson(shown, filter, options.limit, now) + "\n");
  } else {
    for (const inspect::ScanTable* table : shown) {
      Print(inspect::ScanText(*table, filter, options.limit, now));
    }
  }
  return whole ? kExitDone : kExitFailed;
}

// ---- locate and dump ----

using KeyArgument = std::variant<cache::Key, KeyName>;

// What `options` ask for, where it is looked for, and what is there. `context`: also the record of
// a chunk's file.
Result<std::vector<inspect::LocateReport>> Find(const CacheOptions& options,
                                                const KeyArgument& argument, const Caches& caches,
                                                bool context) {
  std::vector<inspect::LocateReport> reports;
  if (const auto* const key = std::get_if<cache::Key>(&argument)) {
    for (const Instance instance : {Instance::kData, Instance::kMetadata}) {
      if (options.Shows(instance)) {
        reports.push_back(caches.Locate({instance, *key, std::nullopt}));
      }
    }
    return reports;
  }
  const auto& name = std::get<KeyName>(argument);
  TAILCAST_ASSIGN_OR_RETURN(const v1::StreamConfig stream,
                            caches.session->client().FindStream(name.stream));
  TAILCAST_RETURN_IF_ERROR(inspect::CheckShard(name, stream));
  const stream::StreamId id = stream::IdOf(stream);
  KeyName record = name;
  if (name.kind == KeyName::Kind::kChunk) {
    record = KeyName{.stream = name.stream, .shard = name.shard, .seq = name.seq};
  }
  reports.push_back(caches.Locate({Instance::kMetadata, inspect::KeyOf(record, id, 0), record}));
  if (name.kind != KeyName::Kind::kChunk) return reports;
  int64_t chunk_size = stream.chunk_size();
  bool known = false;
  if (const auto& value = reports.front().value; value.has_value()) {
    const auto files = inspect::FilesOf(name.seq, *value);
    const auto file = files.find(name.seq);
    known = file != files.end() && file->second.chunk_size > 0;
    if (known) chunk_size = file->second.chunk_size;
  }
  if (!context || !options.Shows(Instance::kMetadata)) reports.clear();
  reports.push_back(caches.Locate({Instance::kData, inspect::KeyOf(name, id, chunk_size), name}));
  if (!known) {
    reports.back().verdict.push_back(
        "The metadata cache does not know the file: its chunks were taken for those of the "
        "stream, " +
        std::to_string(chunk_size) + " bytes.");
  }
  return reports;
}

// KEY as it was given. InvalidArgument: it is none, or not of the instance that was asked for.
Result<KeyArgument> ParseArgument(const CacheOptions& options) {
  TAILCAST_ASSIGN_OR_RETURN(auto argument, inspect::ParseKey(options.key));
  const auto* const name = std::get_if<KeyName>(&argument);
  if (name != nullptr && !options.Shows(name->instance())) {
    return InvalidArgumentError("--instance " + options.instance + ": KEY '" + options.key +
                                "' is one of the " +
                                std::string(inspect::InstanceName(name->instance())) + " cache");
  }
  return argument;
}

int Locate(const CacheOptions& options) {
  const auto argument = ParseArgument(options);
  if (!argument.ok()) return Fail(argument.status());
  const auto caches = Caches::Open(options);
  if (!caches.ok()) return Fail(caches.status());
  const auto reports = Find(options, *argument, *caches, true);
  if (!reports.ok()) return Fail(reports.status());
  const WallTime now = ReadWallClock();
  bool good = true;
  if (options.Json()) Print(inspect::LocateJson(*reports, now) + "\n");
  for (const inspect::LocateReport& report : *reports) {
    if (!options.Json()) Print(inspect::LocateText(report, now));
    good = good && report.answered() > 0 && !report.contradicts;
  }
  return good ? kExitDone : kExitFailed;
}

Status WriteOut(const CacheOptions& options, const std::string& bytes) {
  if (options.out.empty()) {
    Print(bytes);  // main sees whether that went well
    return OkStatus();
  }
  errno = 0;
  std::ofstream out(options.out, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (out) return OkStatus();
  return ErrnoStatus(errno != 0 ? errno : EIO, "--out " + options.out);
}

int Dump(const CacheOptions& options) {
  const auto argument = ParseArgument(options);
  if (!argument.ok()) return Fail(argument.status());
  const auto caches = Caches::Open(options);
  if (!caches.ok()) return Fail(caches.status());
  const auto reports = Find(options, *argument, *caches, false);
  if (!reports.ok()) return Fail(reports.status());
  bool found = false, good = true;
  for (const inspect::LocateReport& report : *reports) {
    if (!report.value.has_value()) continue;
    found = true;
    good = good && !report.contradicts;
    if (const Status written = WriteOut(options, *report.value); !written.ok()) {
      return Fail(written);
    }
  }
  for (const inspect::LocateReport& report : *reports) {
    if (found && !report.value.has_value()) continue;
    std::fprintf(stderr, "tailcast: %s\n", inspect::DumpSummary(report).c_str());
  }
  return found && good ? kExitDone : kExitFailed;
}

}  // namespace

void AddCache(CLI::App& app, Action& action) {
  CLI::App* cache =
      app.add_subcommand("cache", "Look inside the caches of a cell, and change their ring");
  cache->require_subcommand(1);
  AddCacheRing(cache, action);
  auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* about, int (*run)(const CacheOptions&)) {
    CLI::App* command = cache->add_subcommand(name, about);
    options->cell.Add(command, true);
    command
        ->add_option("--instance", options->instance,
                     "data (chunks) or metadata (lengths, locks); default: both")
        ->check(CLI::IsMember({"data", "metadata"}));
    command->callback(
        [&action, options, run] { action = [options, run] { return run(*options); }; });
    return command;
  };
  const auto format = [&](CLI::App* command) {
    command->add_option("--format", options->format, "text or json")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
  };
  const auto key = [&](CLI::App* command) {
    command
        ->add_option(
            "KEY", options->key,
            "STREAM/SHARD/SEQ (what is known of a file), STREAM/SHARD/SEQ/CHUNK (a chunk of "
            "its data), .../index:CHUNK, .../lock:primary, .../lock:cache, or 32 hex digits")
        ->required();
  };

  format(add("stat", "State, memory and counters of each replica, and what is not right", Stat));

  CLI::App* scan = add("scan", "List the keys with their rule, length, time left and owners", Scan);
  scan->add_option("--replica", options->replica, "Only what this replica has; default: all");
  scan->add_option("--stream", options->stream, "Only keys of this stream");
  scan->add_option("--shard", options->shard, "Only keys of this shard, with --stream")
      ->check(ShardNumber());
  scan->add_option("--seq", options->seq, "Only keys of this file, with --shard")
      ->check(CountAboveZero());
  scan->add_option("--limit", options->limit, "List so many keys of each cache; 0: all")
      ->check(CountOrZero())
      ->capture_default_str();
  format(scan);
  scan->footer(
      "Owners are in the order of the ring. Behind a name: - it has not got the key, ? it was not "
      "asked\nor did not answer, + it has it and is no owner. Exit code 1 if a replica could not "
      "be\n"
      "scanned.");

  CLI::App* locate =
      add("locate", "Which replicas own a key, what each has, and whether they agree", Locate);
  key(locate);
  format(locate);
  locate->footer("Exit code 1 if owners contradict each other, or none answered.");

  CLI::App* dump = add("dump", "Write a value as a reader would get it", Dump);
  key(dump);
  dump->add_option("--out", options->out, "Write to this file instead of standard output");
  dump->footer("Exit code 1 if there is no such value, or owners contradict each other.");
}

}  // namespace tailcast::app
