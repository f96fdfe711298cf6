#include "tailcast/app/copytree_command.h"

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/app/copytree_session.h"

namespace tailcast::app {
namespace {

// CLI::Range lets NaN through.
CLI::Validator Between(double low, double high) {
  const auto complain = [low, high](const std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= low && value <= high) return "";
    return "'" + text + "' is not a number from " + FormatNumber("%g", low) + " to " +
           FormatNumber("%g", high);
  };
  return CLI::Validator(complain, "");
}

std::string RefuseEmpty(const std::string& text) {
  return text.empty() ? "is empty; name a cluster" : "";
}

}  // namespace

void AddCopytreeCommand(CLI::App& app, std::function<int()>& action, std::ostream& out,
                        std::ostream& err) {
  CLI::App* copytree = app.add_subcommand(
      "copytree", "Plan the trees along which streams are copied between clusters");
  copytree->require_subcommand(1);
  const auto flags = std::make_shared<CopytreeFlags>();
  const auto add = [&](const char* name, const char* text, Status (CopytreeSession::*what)()) {
    CLI::App* command = copytree->add_subcommand(name, text);
    command->callback([&action, flags, what, &out, &err] {
      action = [flags, what, &out, &err] { return CopytreeSession(flags, out, err).Run(what); };
    });
    return command;
  };
  const auto topology = [&](CLI::App* command) {
    command->add_option("--topology", flags->topology, "Topology file (YAML)")->required();
  };
  const auto planning = [&](CLI::App* command) {
    command->add_option("--stream", flags->streams, "Stream of the topology; default: all");
    command
        ->add_option("--source", flags->source, "Source, for a stream that the file does not have")
        ->check(RefuseEmpty);
    command
        ->add_option("--destinations", flags->destinations,
                     "Clusters that need it; default: all but relays")
        ->delimiter(',');
    command->add_option("--rate-mbps", flags->rate_mbps,
                        "Mbit/s of the stream, for USD per day and loads");
    command->add_option("--max-depth", flags->max_depth, "At most this many hops (1 to 32)");
    command->add_option("--max-fanout", flags->max_fanout,
                        "At most so many children each; 0 = no limit");
    command->add_option("--max-delay-ms", flags->max_delay_ms,
                        "At most this one-way delay; 0 = no limit");
    command->add_option("--cluster-limit", flags->cluster_limits,
                        "NAME:max_depth=N,max_fanout=N,max_egress_mbps=X: limits of one cluster; "
                        "0 = those of the plan");
    command->add_option("--hop-delay-ms", flags->hop_delay_ms,
                        "What a hop adds to half the round trip");
    command
        ->add_option(
            "--effort", flags->effort,
            "quick, normal, thorough, or seconds: how long to search at most (below 2 s up to a "
            "third longer while the tree is more than 1 % above the bound, three times as long "
            "before a refusal without proof, which tries other limits besides). "
            "Counted in steps of about 1 ns, so the same effort gives the same tree")
        ->capture_default_str();
    command
        ->add_option("--tolerance", flags->tolerance_percent,
                     "Good enough: percent above the proven bound at which the search ends")
        ->check(Between(0, 100))
        ->capture_default_str();
    command->add_option("--churn", flags->churn, "USD per GB that changing one edge must save");
    command->add_flag("--replan", flags->replan, "Ignore trees fixed by hand in the file");
  };
  const auto output = [&](CLI::App* command, const std::vector<std::string>& formats) {
    command->add_option("--format", flags->format, "Output format")
        ->check(CLI::IsMember(formats))
        ->capture_default_str();
    command->add_option("-o,--output", flags->output,
                        "Write to this file instead of standard output");
    command->add_flag("--ascii", flags->ascii, "Draw trees with ASCII characters only");
  };

  CLI::App* plan = add("plan", "The cheapest tree within the limits", &CopytreeSession::DoPlan);
  topology(plan);
  planning(plan);
  plan->add_option("--current", flags->current, "The running tree (JSON): change only what pays");
  plan->add_flag("--each-source", flags->each_source,
                 "One tree from each cluster in turn, each alone")
      ->excludes("--source")
      ->excludes("--stream");
  plan->add_flag("--prim", flags->prim, "For comparison: Prim's algorithm, same limits");
  plan->add_flag("--time", flags->time, "Print how long planning took");
  plan->add_flag("--standby", flags->standby,
                 "Two trees that share no link where that can be, as cheap as can be together")
      ->excludes("--prim");
  plan->add_option("--robust", flags->robust_percent,
                   "At most so many percent dearer than the cheapest tree when any one cluster or "
                   "link fails")
      ->check(Between(0, 10000))
      ->excludes("--standby")
      ->excludes("--prim");
  output(plan, {"text", "json", "dot", "svg"});

  CLI::App* compare =
      add("compare", "The planned tree beside a star, Prim's algorithm and the lower bound",
          &CopytreeSession::DoCompare);
  topology(compare);
  planning(compare);
  output(compare, {"text", "json", "svg"});

  CLI::App* explain = add("explain", "Why an edge is in the tree, and what the next best costs",
                          &CopytreeSession::DoExplain);
  explain->add_option("edge", flags->target, "A cluster (the edge into it), FROM->TO, FROM-TO")
      ->required();
  topology(explain);
  planning(explain);
  output(explain, {"text", "json"});

  CLI::App* simulate =
      add("simulate", "What a failure changes: the tree before and after, edges, consumers",
          &CopytreeSession::DoSimulate);
  simulate->add_option("--fail", flags->fail, "A cluster, FROM->TO, or FROM-TO for both directions")
      ->required();
  topology(simulate);
  planning(simulate);
  output(simulate, {"text", "json"});

  CLI::App* diff =
      add("diff", "The make-before-break steps from one tree to another", &CopytreeSession::DoDiff);
  diff->add_option("before", flags->before, "A plan in JSON, or a topology to be planned")
      ->required();
  diff->add_option("after", flags->after, "The same")->required();
  planning(diff);
  output(diff, {"text", "json"});

  CLI::App* import =
      add("import", "Make a topology out of price, round-trip and throughput tables (CSV)",
          &CopytreeSession::DoImport);
  import->add_option("tables", flags->tables, "CSV: from,to and usd_per_gb, rtt_ms, bandwidth_gbps")
      ->required();
  import->add_option("--tier", flags->tier, "Network tier, where tables have one; empty: all")
      ->capture_default_str();
  import->add_flag("--complete", flags->complete,
                   "Keep only clusters with values between all of them");
  import->add_option("--clusters", flags->only, "Keep only these clusters")->delimiter(',');
  import->add_option("--table", flags->table,
                     "Write the links into this CSV, and only its name into the topology: for "
                     "hundreds of clusters");
  import->add_option("--max-depth", flags->max_depth, "Limit to write into the topology")
      ->check(Between(1, 32));
  import->add_option("--max-fanout", flags->max_fanout, "Limit to write into the topology")
      ->check(Between(0, 1e6));
  import->add_option("--max-delay-ms", flags->max_delay_ms, "Limit to write into the topology")
      ->check(Between(0, 1e9));
  import->add_option("--hop-delay-ms", flags->hop_delay_ms, "Written into the topology")
      ->check(Between(0, 1e6));
  import->add_option("-o,--output", flags->output, "Write to this file instead of standard output");

  CLI::App* check = add("check", "Read a topology and see whether each stream has a tree",
                        &CopytreeSession::DoCheck);
  topology(check);
  planning(check);
  output(check, {"text", "json"});
}

}  // namespace tailcast::app
