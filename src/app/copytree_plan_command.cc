#include "tailcast/app/copytree_session.h"

#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "tailcast/base/time.h"
#include "tailcast/copytree/pair.h"
#include "tailcast/copytree/robust.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

using copytree::Plan;
using copytree::RenderOptions;
using copytree::Stream;
using node::ToStream;

Status CopytreeSession::DoPlan() {
  TAILCAST_ASSIGN_OR_RETURN(CopytreeTask task, Prepare(flags_->topology));
  if (task.streams.empty()) {
    return InvalidArgumentError(flags_->topology +
                                " has no streams; say where the stream comes from with --source "
                                "CLUSTER");
  }
  const bool drawn = flags_->format == "dot" || flags_->format == "svg";
  if (drawn && task.streams.size() > 1) {
    return InvalidArgumentError("--format " + flags_->format +
                                " draws one stream; choose it with --stream");
  }
  if (!flags_->current.empty()) {
    TAILCAST_ASSIGN_OR_RETURN(task.options.current, ReadTree(flags_->current));
  }
  std::string text;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const cell::TopologyStream& stream : task.streams) {
    const Stream named = ToStream(stream);
    std::optional<Plan> plan;
    std::optional<copytree::PlanPair> pair;
    std::optional<copytree::RobustPlan> robust;
    const MonotonicTime began = ReadMonotonicClock();
    const std::clock_t cpu_began = std::clock();
    if (flags_->prim) {
      TAILCAST_ASSIGN_OR_RETURN(plan, copytree::PrimPlan(*task.graph, named, task.options));
    } else if (flags_->standby) {
      Result<copytree::PlanPair> both = copytree::MakePlanPair(*task.graph, named, task.options);
      if (!both.ok()) return InStream(stream, both.status());
      pair = std::move(both).value();
      plan = pair->primary;
    } else if (flags_->robust_percent) {
      Result<copytree::RobustPlan> safe =
          copytree::MakeRobustPlan(*task.graph, named, task.options, *flags_->robust_percent / 100);
      if (!safe.ok()) return InStream(stream, safe.status());
      robust = std::move(safe).value();
      plan = robust->plan;
    } else {
      TAILCAST_ASSIGN_OR_RETURN(plan, PlanOf(task, stream, task.options));
    }
    const double plan_ms = static_cast<double>((ReadMonotonicClock() - began).micros()) / 1000;
    const double cpu_ms = 1000.0 * static_cast<double>(std::clock() - cpu_began) / CLOCKS_PER_SEC;
    RenderOptions rendering = Rendering(task.options);
    if (pair) rendering.pair = &*pair;
    if (robust) rendering.robust = &*robust;
    if (flags_->format == "text") {
      if (!text.empty()) text += "\n";
      if (!stream.name.empty()) text += "stream " + stream.name + "\n";
      text += copytree::PlanText(named, *plan, rendering);
      if (flags_->time)
        text += "planned   in " + FormatNumber("%.1f", plan_ms) + " ms (" +
                FormatNumber("%.1f", cpu_ms) + " ms of processor time)\n";
    } else if (Json()) {
      all.push_back(nlohmann::ordered_json::parse(copytree::PlanJson(named, *plan, rendering)));
      if (flags_->time) {
        all.back()["plan_ms"] = plan_ms;
        all.back()["plan_cpu_ms"] = cpu_ms;
      }
    } else if (flags_->format == "dot") {
      text = copytree::PlanDot(named, *plan, rendering);
    } else {
      text = copytree::PlanSvg(named, *plan, rendering);
    }
    // The next stream finds the links as full as this one leaves them.
    if (flags_->each_source) continue;
    for (const copytree::LinkLoad& load : plan->loads) {
      copytree::LinkLoad own = load;
      own.mbps = named.rate_mbps * copytree::kCopiesPerHop;
      task.options.reserved.push_back(own);
    }
  }
  if (Json()) text = (all.size() == 1 ? all[0] : all).dump(2) + "\n";
  return Write(text);
}

}  // namespace tailcast::app
