#include "tailcast/app/source_cell.h"

#include "tailcast/app/cell_session.h"
#include "tailcast/app/deployment.h"

namespace tailcast::app {

Result<CellOptions> AtSource(const CellOptions& options, const std::string& stream) {
  CellOptions cell = options;
  if (!cell.cell.empty() || cell.dir.empty()) return cell;
  TAILCAST_ASSIGN_OR_RETURN(const Deployment deployment, Deployment::Read(cell.dir));
  TAILCAST_ASSIGN_OR_RETURN(const DeploymentCell source, FindSource(deployment, stream));
  cell.cluster = source.name;
  return cell;
}

}  // namespace tailcast::app
