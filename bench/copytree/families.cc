// Draws the families of problems and plans them, for bench/copytree/families.py: one line of JSON
// per instance.
//
//   copytree_families draw FIRST LAST
//   copytree_families plan FIRST LAST quick|normal|thorough
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "tailcast/copytree/families_testing.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"

namespace {

using namespace tailcast::copytree;

std::string PlanJson(const Instance& instance, const std::string& effort) {
  std::string json = "{\"number\":" + std::to_string(instance.number);
  const tailcast::Result<Graph> graph = Graph::Create(instance.clusters, instance.links);
  PlanOptions options = instance.options;
  options.work_max = WorkOf(effort == "quick"    ? Effort::kQuick
                            : effort == "normal" ? Effort::kNormal
                                                 : Effort::kThorough,
                            static_cast<int>(instance.clusters.size()));
  const std::clock_t began = std::clock();
  const tailcast::Result<Plan> plan = graph.ok() ? MakePlan(*graph, instance.stream, options)
                                                 : tailcast::Result<Plan>(graph.status());
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  json += ",\"cpu_ms\":" + std::to_string(1000 * seconds);
  if (!plan.ok()) return json + ",\"refusal\":\"" + std::string(plan.status().message()) + "\"}";
  json += ",\"lower_bound\":" + std::to_string(plan->lower_bound_usd_per_gb) +
          ",\"optimal\":" + (plan->optimal ? "true" : "false") +
          ",\"work\":" + std::to_string(plan->work) + ",\"edges\":[";
  for (size_t i = 0; i < plan->tree.edges.size(); ++i) {
    const Edge& edge = plan->tree.edges[i];
    json += (i == 0 ? "[" : ",[") + std::to_string(std::stoi(edge.from.substr(1))) + "," +
            std::to_string(std::stoi(edge.to.substr(1))) + "]";
  }
  return json + "]}";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if ((what != "draw" || argc != 4) && (what != "plan" || argc != 5)) {
    std::fprintf(stderr, "usage: copytree_families draw FIRST LAST | plan FIRST LAST EFFORT\n");
    return 2;
  }
  for (int number = std::atoi(argv[2]); number <= std::atoi(argv[3]); ++number) {
    const Instance instance = DrawInstance(number);
    const std::string line = what == "draw" ? InstanceJson(instance) : PlanJson(instance, argv[4]);
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
}
