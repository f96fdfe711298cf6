// Where the schedulers of a deployment on this machine listen.
#pragma once

#include <functional>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/cell/topology.h"

namespace tailcast::app {

// Gives an address to each cell for which the topology has none. Such a cell stays where it was
// when the deployment in `dir` ran before, as its users know it there, unless somebody else has
// that port by now; `say` gets a line then.
//   InvalidArgument: an address of the topology is not of this host; FailedPrecondition: somebody
//   listens there already, and the cell's processes would talk to him.
Status ChooseAddresses(const std::string& dir, const std::function<void(const std::string&)>& say,
                       cell::Topology& topology);

}  // namespace tailcast::app
