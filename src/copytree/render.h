// Plans for people and programs: a drawing in text, JSON, Graphviz, SVG. Pure: strings out.
#pragma once

#include <string>
#include <vector>

#include "tailcast/copytree/change.h"
#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

struct RenderOptions {
  bool ascii = false;             // |-- instead of box drawing characters
  const Plan* standby = nullptr;  // drawn beside (text, JSON) or dashed on top (dot, SVG)
  Limits limits;                  // printed beside what the tree uses of them
};

// The tree with price and arrival of each hop, then the figures, re-routes and warnings.
std::string PlanText(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// One object, keys as in docs/formats/copytree_json.md; ends with a newline.
std::string PlanJson(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// A digraph for Graphviz.
std::string PlanDot(const Stream& stream, const Plan& plan, const RenderOptions& options = {});
// A picture of its own, laid out from the source on the left to the leaves on the right. Edges are
// coloured by price; relays are dashed, sick clusters red, new ones amber.
std::string PlanSvg(const Stream& stream, const Plan& plan, const RenderOptions& options = {});

// One step a line, blank lines between waves.
std::string StepsText(const std::vector<Step>& steps);
// An array of objects.
std::string StepsJson(const std::vector<Step>& steps);

}  // namespace tailcast::copytree
