// From the topology file's terms to the optimiser's.
#pragma once

#include "tailcast/base/status.h"
#include "tailcast/cell/topology.h"
#include "tailcast/copytree/graph.h"
#include "tailcast/copytree/plan.h"

namespace tailcast::node {

// Errors as Graph::Create; a topology that was read from a file has none left.
Result<copytree::Graph> ToGraph(const cell::Topology& topology);

copytree::Stream ToStream(const cell::TopologyStream& stream);

// Limits, hop delay and churn price of the file; the rest at its defaults.
copytree::PlanOptions ToPlanOptions(const cell::Topology& topology);

// The tree fixed by hand; without edges if the stream's tree is to be planned.
copytree::Tree ToTree(const cell::TopologyStream& stream);

// The stream's tree: the one fixed by hand, described, or a planned one.
Result<copytree::Plan> PlanStream(const copytree::Graph& graph, const cell::TopologyStream& stream,
                                  const copytree::PlanOptions& options);

}  // namespace tailcast::node
