// tailcast stream create|list|describe|delete|retain|trim|reroute
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/app/cache_warning.h"
#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/deployment.h"
#include "tailcast/app/forgotten_stream.h"
#include "tailcast/app/reroute.h"
#include "tailcast/app/retention_options.h"
#include "tailcast/cell/topology.h"
#include "tailcast/copytree/render.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/position.h"

namespace tailcast::app {
namespace {

struct StreamOptions {
  CellOptions cell;
  std::string name;
  int32_t shards = 1;
  int64_t chunk_size = 0;  // by the rate
  std::vector<std::string> destinations;
  bool json = false, yes = false, forgotten = false;
  std::vector<std::string> avoid, sick, fail, tree, without, with;
  bool dry_run = false;
  double wait_s = 0;
  RetentionFlags retention;
  std::optional<int64_t> expected_bytes_per_s;
  std::string before;  // a position
};

// As in a position. A number of 64 bits would not survive every reader of JSON.
std::string Incarnation(const v1::StreamConfig& stream) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, static_cast<uint64_t>(stream.incarnation()));
  return text;
}

nlohmann::json ToJson(const v1::StreamConfig& stream) {
  nlohmann::json json = {{"name", stream.name()},
                         {"incarnation", Incarnation(stream)},
                         {"shards", stream.shards()},
                         {"chunk_size", stream.chunk_size()},
                         {"chunk_size_by_rate", stream.chunk_size_by_rate()},
                         {"source", stream.source()},
                         {"destinations", stream.destinations()},
                         {"tree_version", stream.tree_version()},
                         {"settled_version", stream.settled_version()},
                         {"finished_version", stream.finished_version()},
                         {"changing", stream.has_change()},
                         {"retention",
                          {{"age_max_us", stream.retention().age_max_us()},
                           {"shard_bytes_max", stream.retention().shard_bytes_max()},
                           {"when_full", stream.retention().drop() ? "drop" : "block"},
                           {"away_max_us", stream.retention().away_max_us()},
                           {"file_bytes", stream.retention().file_bytes()}}},
                         {"left_out", stream.left_out()}};
  json["tree"] = nlohmann::json::array();
  for (const auto& edge : stream.tree()) {
    json["tree"].push_back({{"from", edge.from()}, {"to", edge.to()}});
  }
  return json;
}

void Describe(const v1::StreamConfig& stream) {
  std::printf("%s\n  incarnation  %s\n  shards       %d\n  chunk size   %" PRId64
              " bytes%s\n  source       %s\n",
              stream.name().c_str(), Incarnation(stream).c_str(), stream.shards(),
              static_cast<int64_t>(stream.chunk_size()),
              stream.chunk_size_by_rate() ? " first, then by the rate" : "",
              stream.source().c_str());
  std::printf("  kept         %s\n", RetentionText(stream.retention()).c_str());
  for (const auto& edge : stream.tree()) {
    std::printf("  copied       %s -> %s\n", edge.from().c_str(), edge.to().c_str());
  }
  for (const std::string& cell : stream.left_out()) {
    std::printf("  left out     %s: nothing is kept for it until it answers again\n", cell.c_str());
  }
  const auto in_tree = [&](const v1::TreeEdge& edge) {
    for (const auto& other : stream.tree()) {
      if (other.from() == edge.from() && other.to() == edge.to()) return true;
    }
    return false;
  };
  if (stream.has_change()) {
    std::printf("  changing     to tree %" PRIu64 "; until its cells have caught up also\n",
                static_cast<uint64_t>(stream.tree_version()));
    for (const auto* edges : {&stream.change().base(), &stream.change().abandoned()}) {
      for (const auto& edge : *edges) {
        if (!in_tree(edge)) {
          std::printf("               %s -> %s\n", edge.from().c_str(), edge.to().c_str());
        }
      }
    }
  }
}

int Create(const StreamOptions& options) {
  if (Status s = stream::ValidateStreamName(options.name); !s.ok()) return Fail(s);
  auto session = CellSession::Open(options.cell);
  if (!session.ok()) return Fail(session.status());
  v1::StreamConfig stream;
  stream.set_name(options.name);
  stream.set_shards(options.shards);
  stream.set_chunk_size(options.chunk_size);
  for (const std::string& destination : options.destinations) stream.add_destinations(destination);
  if (options.retention.given()) {
    auto retention = options.retention.Apply({});
    if (!retention.ok()) return Fail(retention.status());
    *stream.mutable_retention() = *retention;
  }
  const auto made = (*session)->Call<Result<v1::StreamConfig>>(
      [&](auto done) { (*session)->client().CreateStream(stream, std::move(done)); },
      "`tailcast stream list` shows whether the stream is there");
  if (!made.ok()) return Fail(made.status());
  std::vector<DeploymentCell> cells;
  if (options.cell.dir.empty()) {
    const auto scheduler = options.cell.Find();
    if (scheduler.ok()) cells.push_back({"", *scheduler});
  } else {
    const auto deployment = Deployment::Read(options.cell.dir);
    if (!deployment.ok()) return Fail(deployment.status());
    const Status known = WaitForStreamEverywhere(*deployment, *made, Duration::Seconds(10));
    if (!known.ok()) return Fail(known);
    cells = deployment->cells;
  }
  Describe(*made);
  std::fflush(stdout);
  WarnOfSmallCaches(cells, *made,
                    options.expected_bytes_per_s
                        ? static_cast<double>(*options.expected_bytes_per_s)
                        : ExpectedRate((*session)->client().view(), options.name));
  return kExitDone;
}

// Of that cell, or with --dir alone of all cells that answer, in order of names.
Result<std::vector<v1::StreamConfig>> StreamsOf(const CellOptions& options) {
  std::map<std::string, v1::StreamConfig> streams;
  const auto add = [&](CellSession& session) {
    for (const auto& stream : session.client().view().streams()) {
      streams.try_emplace(stream.name(), stream);
    }
  };
  if (options.dir.empty() || (!options.cluster.empty() && !options.cluster_is_default)) {
    TAILCAST_ASSIGN_OR_RETURN(const auto session, CellSession::Open(options));
    add(*session);
  } else {
    TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(options.dir));
    Status silent;
    bool answered = false;
    for (const DeploymentCell& cell : deployment.cells) {
      const auto session = CellSession::OpenAt(cell.scheduler, Duration::Seconds(2));
      if (session.ok()) {
        add(**session);
        answered = true;
        continue;
      }
      if (silent.ok()) silent = session.status();
      std::fprintf(stderr, "tailcast: cell %s does not answer\n", cell.name.c_str());
    }
    if (!answered) return silent;
  }
  std::vector<v1::StreamConfig> list;
  for (auto& [name, stream] : streams) list.push_back(std::move(stream));
  return list;
}

int List(const StreamOptions& options) {
  const auto found = StreamsOf(options.cell);
  if (!found.ok()) return Fail(found.status());
  const std::vector<v1::StreamConfig>& streams = *found;
  if (options.json) {
    nlohmann::json json = nlohmann::json::array();
    for (const auto& stream : streams) json.push_back(ToJson(stream));
    std::printf("%s\n", json.dump(2).c_str());
    return kExitDone;
  }
  for (const auto& stream : streams) {
    // Each cell that gets a copy has one edge, also where none was named.
    const int cells = stream.tree_size();
    std::printf("%-30s %5d shard%s   %s\n", stream.name().c_str(), stream.shards(),
                stream.shards() == 1 ? " " : "s",
                cells == 0 ? ("in " + stream.source() + " alone").c_str()
                           : ("from " + stream.source() + " to " + std::to_string(cells) +
                              (cells == 1 ? " cell" : " cells"))
                                 .c_str());
  }
  if (streams.empty()) std::printf("no streams; make one with `tailcast stream create`\n");
  return kExitDone;
}

// Any cell knows where a stream begins, and only there it is changed: with --dir and no --cluster
// the source is found.
Result<CellOptions> AtSource(const StreamOptions& options) {
  CellOptions cell = options.cell;
  if (cell.dir.empty() || (!cell.cluster.empty() && !cell.cluster_is_default)) return cell;
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(cell.dir));
  TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell source, FindSource(deployment, options.name));
  cell.cluster = source.name;
  return cell;
}

int DescribeOne(const StreamOptions& options) {
  const auto cell = AtSource(options);
  if (!cell.ok()) return Fail(cell.status());
  auto session = CellSession::Open(*cell);
  if (!session.ok()) return Fail(session.status());
  auto stream = (*session)->client().FindStream(options.name);
  if (!stream.ok()) return Fail(stream.status());
  if (options.json) {
    std::printf("%s\n", ToJson(*stream).dump(2).c_str());
  } else {
    Describe(*stream);
  }
  return kExitDone;
}

// Asks on a terminal; without one --yes has to say it.
Status Confirm(const StreamOptions& options, const v1::StreamConfig& stream) {
  if (options.yes) return OkStatus();
  if (isatty(STDIN_FILENO) == 0) {
    return InvalidArgumentError("deleting stream '" + stream.name() +
                                "' takes its messages from every cell; say --yes");
  }
  std::fprintf(stderr,
               "Delete stream '%s' (source %s, %d shards) and its messages in every cell? [y/N] ",
               stream.name().c_str(), stream.source().c_str(), stream.shards());
  const int answer = std::getchar();
  if (answer == 'y' || answer == 'Y') return OkStatus();
  return CancelledError("stream '" + stream.name() + "' is not deleted");
}

int Delete(const StreamOptions& options) {
  if (options.forgotten) {
    const auto done = DeleteForgottenStream(
        options.cell, options.name,
        [&](const v1::StreamConfig& stream) { return Confirm(options, stream); });
    if (!done.ok()) return Fail(done.status());
    std::printf("%s\n", done->c_str());
    return kExitDone;
  }
  const auto source = AtSource(options);
  if (!source.ok()) return Fail(source.status());
  auto session = CellSession::Open(*source);
  if (!session.ok()) return Fail(session.status());
  const auto stream = (*session)->client().FindStream(options.name);
  if (!stream.ok()) return Fail(stream.status());
  const std::string& here = (*session)->client().view().cell();
  if (stream->source() != here) {
    return Fail(FailedPreconditionError("stream '" + options.name + "' has its source in cell '" +
                                        stream->source() + "': delete it there, not in cell '" +
                                        here + "'"));
  }
  if (Status sure = Confirm(options, *stream); !sure.ok()) return Fail(sure);
  const Status done = (*session)->Call<Status>(
      [&](auto then) { (*session)->client().DeleteStream(stream::IdOf(*stream), std::move(then)); },
      "`tailcast stream list` shows whether the stream is still there");
  if (!done.ok()) return Fail(done);
  std::printf("stream '%s' is deleted; cells that cannot be reached now are told later\n",
              options.name.c_str());
  return kExitDone;
}

// A session with the source of the stream, and its configuration.
Result<std::unique_ptr<CellSession>> OpenAtSource(const StreamOptions& options,
                                                  v1::StreamConfig* stream) {
  TAILCAST_ASSIGN_OR_RETURN(const CellOptions source, AtSource(options));
  TAILCAST_ASSIGN_OR_RETURN(auto session, CellSession::Open(source));
  TAILCAST_ASSIGN_OR_RETURN(*stream, session->client().FindStream(options.name));
  return session;
}

int Retain(const StreamOptions& options) {
  if (!options.retention.given()) {
    return Fail(InvalidArgumentError(
        "say what is kept: --max-age, --max-shard-bytes, --when-full or --away-max"));
  }
  v1::StreamConfig stream;
  auto session = OpenAtSource(options, &stream);
  if (!session.ok()) return Fail(session.status());
  auto retention = options.retention.Apply(stream.retention());
  if (!retention.ok()) return Fail(retention.status());
  v1::SetRetentionRequest request;
  request.set_name(options.name);
  *request.mutable_retention() = *retention;
  const auto done = (*session)->Call<Result<v1::StreamConfig>>(
      [&](auto then) { (*session)->client().SetRetention(request, std::move(then)); },
      "`tailcast stream describe` shows what is kept; it may be said again");
  if (!done.ok()) return Fail(done.status());
  std::printf("stream '%s' keeps %s\n", options.name.c_str(),
              RetentionText(done->retention()).c_str());
  return kExitDone;
}

int Trim(const StreamOptions& options) {
  const auto before = stream::Position::Parse(options.before);
  if (!before.ok()) return Fail(before.status().WithContext("--before"));
  v1::StreamConfig stream;
  auto session = OpenAtSource(options, &stream);
  if (!session.ok()) return Fail(session.status());
  v1::TrimStreamRequest request;
  request.set_name(options.name);
  request.set_incarnation(static_cast<uint64_t>(before->incarnation));
  request.set_shard(before->shard);
  request.set_before_byte(before->byte);
  const auto done = (*session)->Call<Result<v1::TrimStreamReply>>(
      [&](auto then) { (*session)->client().TrimStream(request, std::move(then)); },
      "say it again, which does no more than once");
  if (!done.ok()) return Fail(done.status());
  std::printf("shard %d of stream '%s' will begin at byte %" PRId64 " (file %" PRId64
              "): whole files go, once every cell has them\n",
              before->shard, options.name.c_str(), static_cast<int64_t>(done->first_byte()),
              static_cast<int64_t>(done->floor_seq()));
  return kExitDone;
}

int RerouteOne(const StreamOptions& options) {
  const auto source = AtSource(options);
  if (!source.ok()) return Fail(source.status());
  auto session = CellSession::Open(*source);
  if (!session.ok()) return Fail(session.status());
  const auto topology = cell::ParseTopology((*session)->client().view().topology(), "the topology",
                                            cell::Tables::kSkip);
  if (!topology.ok()) return Fail(topology.status());
  RerouteRequest request{.stream = options.name,
                         .sick = options.sick,
                         .failed = options.fail,
                         .without = options.without,
                         .with = options.with,
                         .dry_run = options.dry_run};
  for (const auto& [texts, edges] :
       {std::pair(&options.avoid, &request.avoid), std::pair(&options.tree, &request.tree)}) {
    for (const std::string& text : *texts) {
      auto edge = ParseEdge(text, topology->ClusterNames());
      if (!edge.ok()) return Fail(edge.status());
      edges->push_back(std::move(*edge));
    }
  }
  const auto rerouted = Reroute(**session, request);
  if (!rerouted.ok()) return Fail(rerouted.status());
  for (const std::string& warning : rerouted->warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  if (!rerouted->changed) {
    std::printf("the tree stays as it is\n");
    return kExitDone;
  }
  std::printf("%s", copytree::StepsText(rerouted->steps).c_str());
  std::printf("\nUSD per GB %.4f -> %.4f\n", rerouted->usd_per_gb_before,
              rerouted->usd_per_gb_after);
  for (const copytree::Step& step : rerouted->steps) {
    if (step.kind != copytree::StepKind::kSwitchConsumers) continue;
    std::printf("consumers of %s: start them with --cluster %s; positions are the same\n",
                step.from.c_str(), step.to.c_str());
  }
  if (options.dry_run) {
    std::printf("not done (--dry-run)\n");
    return kExitDone;
  }
  std::fflush(stdout);
  if (options.wait_s > 0) {
    const Status done = WaitForTree(**session, options.name, rerouted->tree_version,
                                    Duration::Millis(static_cast<int64_t>(options.wait_s * 1000)));
    if (!done.ok()) return Fail(done);
    std::printf("carried out\n");
  } else {
    std::printf("the schedulers are on it\n");
  }
  return kExitDone;
}

}  // namespace

void AddStream(CLI::App& app, Action& action) {
  CLI::App* stream = app.add_subcommand("stream", "Create, list, describe and delete streams");
  stream->require_subcommand(1);
  auto options = std::make_shared<StreamOptions>();

  const auto add = [&](const char* name, const char* about, int (*run)(const StreamOptions&)) {
    CLI::App* command = stream->add_subcommand(name, about);
    options->cell.Add(command, true);
    command->callback(
        [&action, options, run] { action = [options, run] { return run(*options); }; });
    return command;
  };
  CLI::App* create = add("create", "Make a stream whose source is this cell", Create);
  create->add_option("--stream", options->name, "Its name")->required();
  create->add_option("--shards", options->shards, "Shards, each with an order of its own")
      ->check(CLI::Range(1, stream::kShardsMax))
      ->capture_default_str();
  create
      ->add_option("--chunk-size", options->chunk_size,
                   "Bytes of a cache chunk; default: 4096 in the first file of a shard, in each "
                   "further one as fits the rate of the file before")
      ->check(CLI::IsMember({512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}));
  create
      ->add_option("--destinations", options->destinations,
                   "Cells that get a copy; default: all cells of the topology")
      ->delimiter(',');
  create
      ->add_option(
          "--expect-rate", options->expected_bytes_per_s,
          "What will be published in a second, as 8MB: cells whose data cache is too small "
          "for a minute of it are warned of; default: streams[].rate_mbps of the topology")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::NonNegativeNumber)
      ->type_name("BYTES/S");
  options->retention.Add(create);
  CLI::App* list = add("list", "The streams of a cell, or of all", List);
  list->add_flag("--json", options->json, "As JSON");
  CLI::App* describe = add("describe", "One stream and its copy tree", DescribeOne);
  describe->add_option("--stream", options->name, "Its name")->required();
  describe->add_flag("--json", options->json, "As JSON");
  CLI::App* erase = add("delete", "Delete a stream and its messages in every cell", Delete);
  erase->add_option("--stream", options->name, "Its name")->required();
  erase->add_flag("--yes", options->yes, "Do not ask");
  erase->add_flag("--forgotten", options->forgotten,
                  "One that other cells have and its source does not know any more, because its "
                  "registry was lost");
  CLI::App* retain = add("retain", "Change what a stream keeps; what is not given stays", Retain);
  retain->add_option("--stream", options->name, "Its name")->required();
  options->retention.Add(retain);
  CLI::App* trim = add("trim", "Delete the files of a shard that lie before a position", Trim);
  trim->add_option("--stream", options->name, "Its name")->required();
  trim->add_option("--before", options->before,
                   "A position, as consume --positions shows it; the file that holds it stays")
      ->required();
  CLI::App* reroute = add("reroute", "Change the copy tree while the stream runs", RerouteOne);
  reroute->add_option("--stream", options->name, "Its name")->required();
  reroute->add_option("--avoid", options->avoid, "A link that shall not be used, FROM-TO")
      ->delimiter(',');
  reroute->add_option("--sick", options->sick, "A cell that shall feed nobody")->delimiter(',');
  reroute->add_option(
      "--fail", options->fail,
      "A cell, or a link A->B or A-B (both directions), that has failed; may be repeated");
  reroute
      ->add_option("--without", options->without,
                   "A cell that gets no copy any more; what it has goes ten minutes later")
      ->delimiter(',');
  reroute->add_option("--with", options->with, "A cell that gets a copy from now on")
      ->delimiter(',');
  reroute
      ->add_option("--tree", options->tree,
                   "The new tree itself, FROM-TO,FROM-TO,...; default: planned")
      ->delimiter(',');
  reroute->add_flag("--dry-run", options->dry_run, "Show the steps and do nothing");
  reroute->add_option("--wait", options->wait_s, "Wait so many seconds until it is carried out")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace tailcast::app
