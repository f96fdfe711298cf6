// Which message files the cells of `tailcast status` lack: what their schedulers have found, and
// what a look at the folders shows at once.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tailcast/proto/cell.pb.h"

namespace tailcast::app {

// Adds `lacking_files`, how many the scheduler knows of, to the cell, and to each of the shards
// that are in its `streams` what it lacks: "lacking": [{"file": 3, "kind": "absent"}], kind absent,
// damaged or incomplete; absent if nothing. Lists the folders of these shards, in the cell's
// primary layer, for up to a second; one that can't be listed says nothing.
void AddLacking(const v1::CellView& view, nlohmann::json& cell);

}  // namespace tailcast::app
