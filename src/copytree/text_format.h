// How drawings write numbers and names; for render.cc and svg.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/copytree/compare.h"
#include "tailcast/copytree/plan.h"

namespace tailcast::copytree {

inline std::string Format(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
inline std::string Usd(double value) { return Format("%.4f", value); }
inline std::string Ms(double value) { return Format("%.1f", value); }
inline std::string Short(double value) { return Format("%.6g", value); }
inline double Round(double value) { return std::round(value * 1e9) / 1e9; }

// Characters, not bytes, so that columns line up with names in UTF-8.
inline size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

inline std::string Pad(std::string text, size_t width) {
  const size_t now = Width(text);
  if (now < width) text.append(width - now, ' ');
  return text;
}

inline std::map<std::string, std::vector<const Hop*>> ByParent(const Plan& plan) {
  std::map<std::string, std::vector<const Hop*>> children;
  for (const Hop& hop : plan.hops) children[hop.from].push_back(&hop);
  return children;
}

// "+12.3 %"
inline std::string Above(double usd, double reference) {
  return reference > 0 ? Format("%+.1f %%", 100 * (usd / reference - 1)) : "";
}

// What a tree's bound says of it, or that of a pair.
inline std::string HowGood(bool optimal, double gap) {
  if (optimal) return "proven optimal";
  if (std::isinf(gap)) return "no bound";
  return "at most " + Format("%.2f", gap * 100) + " % above the optimum";
}
inline std::string HowGood(const Plan& plan) {
  return plan.breaks_limits ? "breaks the limits" : HowGood(plan.optimal, plan.Gap());
}

// What a contender breaks, short enough for a line.
inline std::string BrokenText(const Contender& contender) {
  if (contender.broken.empty()) return "";
  const size_t more = contender.broken.size() - 1;
  return contender.broken.front() + (more > 0 ? ", and " + std::to_string(more) + " more" : "");
}

}  // namespace tailcast::copytree
