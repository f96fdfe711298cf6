#include "tailcast/app/copytree_session.h"

#include <string>
#include <utility>
#include <vector>

#include "tailcast/copytree/compare.h"
#include "tailcast/node/topology_graph.h"

namespace tailcast::app {

Status CopytreeSession::DoCompare() {
  TAILCAST_ASSIGN_OR_RETURN(const auto prepared, PrepareOne(flags_->topology));
  const auto& [task, stream] = prepared;
  const copytree::Stream named = node::ToStream(stream);
  Result<std::vector<copytree::Contender>> contenders =
      copytree::Compare(*task.graph, named, task.options);
  if (!contenders.ok()) return InStream(stream, contenders.status());
  if (Json()) return Write(copytree::ComparisonJson(named, *contenders));
  if (flags_->format == "svg") return Write(copytree::ComparisonSvg(named, *contenders));
  return Write(copytree::ComparisonText(named, *contenders));
}

}  // namespace tailcast::app
