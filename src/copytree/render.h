// Plans for people and programs: a drawing in text, JSON, Graphviz, SVG. Pure: strings out.
#pragma once

#include <string>
#include <vector>

#include "tailcast/copytree/change.h"
#include "tailcast/copytree/compare.h"
#include "tailcast/copytree/pair.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/robust.h"

namespace tailcast::copytree {

struct RenderOptions {
  bool ascii = false;  // |-- instead of box drawing characters
  // The plan is its first tree; the standby comes below it (text, SVG), beside it (JSON), dashed on
  // top (dot).
  const PlanPair* pair = nullptr;
  const RobustPlan* robust = nullptr;  // what failures of the plan cost (not in dot)
  Limits limits;                       // printed beside what the tree uses of them
};

// The tree with price and arrival of each hop, then the figures, re-routes and warnings.
std::string PlanText(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// One object, keys as in docs/formats/copytree_json.md; ends with a newline.
std::string PlanJson(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// A digraph for Graphviz.
std::string PlanDot(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// A picture of its own, laid out from the source on the left to the leaves on the right, with a
// legend. Edges are coloured by price; relays are dashed, sick clusters red, new ones amber.
std::string PlanSvg(const Stream& stream, const Plan& plan, const RenderOptions& options = {});

// A line for each contender and one for the bound; 80 columns.
std::string ComparisonText(const Stream& stream, const std::vector<Contender>& contenders);
// One object, keys as in docs/formats/copytree_json.md; ends with a newline.
std::string ComparisonJson(const Stream& stream, const std::vector<Contender>& contenders);
// Bars with the bound as a line, for reports. Trees that break limits are drawn empty.
std::string ComparisonSvg(const Stream& stream, const std::vector<Contender>& contenders);

// One step a line, blank lines between waves.
std::string StepsText(const std::vector<Step>& steps);
// An array of objects.
std::string StepsJson(const std::vector<Step>& steps);

}  // namespace tailcast::copytree
