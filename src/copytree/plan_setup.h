// A graph, a stream and options as a bare problem (problem.h), and what is needed to get back.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"
#include "tailcast/copytree/problem.h"
#include "tailcast/copytree/solver.h"

namespace tailcast::copytree {

inline constexpr int kDepthMax = 32;
inline constexpr double kNanos = 1e9;

inline int64_t Micros(double ms) { return std::llround(ms * 1000); }
inline int64_t Nanos(double usd) { return std::llround(usd * kNanos); }
// Six digits, as messages show values.
std::string Number(double value);

struct Setup {
  Problem problem;
  std::vector<char> destination;
  std::vector<int64_t> penalty;  // [from * n + to], the part of the weight that is no price
  std::vector<double> reserved;  // [from * n + to], Mbit/s
  std::vector<Edge> too_slow;    // links left out because the stream does not fit
  std::optional<Tree> current;
};

// InvalidArgument or NotFound, as MakePlan.
Result<Setup> MakeSetup(const Graph& graph, const Stream& stream, const PlanOptions& options);

// The running tree as far as it still exists in the graph, if there is one.
std::vector<Parents> Starts(const Graph& graph, const Setup& setup);

// The effort that the options ask for.
int64_t WorkMax(const Graph& graph, const PlanOptions& options);
SolveOptions ToSolveOptions(const Graph& graph, const PlanOptions& options);

}  // namespace tailcast::copytree
