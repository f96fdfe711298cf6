#include "tailcast/app/scrape_targets.h"

#include <fstream>

#include "tailcast/app/durable_file.h"

namespace tailcast::app {

using nlohmann::json;

json ScrapeTargets(const json& cells, const json& before) {
  json all = json::array();
  for (const json& cell : cells) {
    const std::string name = cell.value("name", "");
    if (cell.contains("error") || !cell.contains("processes")) {
      for (const json& one : before.is_array() ? before : json::array()) {
        const json* labels = one.is_object() && one.contains("labels") ? &one["labels"] : nullptr;
        if (labels != nullptr && labels->is_object() && labels->contains("cell") &&
            (*labels)["cell"] == name) {
          all.push_back(one);
        }
      }
      continue;
    }
    for (const json& process : cell["processes"]) {
      if (process.value("metrics", "").empty()) continue;
      all.push_back({{"targets", {process["metrics"]}},
                     {"labels",
                      {{"cell", name},
                       {"role", process.value("role", "")},
                       {"process", process.value("name", "")}}}});
    }
  }
  return all;
}

Status WriteScrapeTargets(const std::string& path, const json& cells) {
  std::ifstream in(path);
  const json before = in ? json::parse(in, nullptr, false) : json();
  return ReplaceFile(path, ScrapeTargets(cells, before).dump(2) + "\n");
}

}  // namespace tailcast::app
