// A stream that its source does not know any more, because the source's registry was lost or set
// back to an older one: the other cells keep it, refuse its name, and no cell may delete it.
#pragma once

#include <functional>
#include <string>

#include "tailcast/app/command.h"
#include "tailcast/base/status.h"
#include "tailcast/proto/cell.pb.h"

namespace tailcast::app {

// Deletes it in all cells that answer, and gives the disk back that it took, in its source, too.
// `sure` is asked before. Returns what was done, for people.
//   NotFound: no cell that answers has a stream of that name
//   FailedPrecondition: the source knows it, so it is deleted there
//   Unavailable: the source does not answer; what it knows is not known
Result<std::string> DeleteForgottenStream(
    const CellOptions& options, const std::string& name,
    const std::function<Status(const v1::StreamConfig&)>& sure);

}  // namespace tailcast::app
