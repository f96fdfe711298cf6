// What ./dev sim scale prints, and what it writes for the drawings (bench/scale/plot.py).
#pragma once

#include <string>
#include <vector>

#include "tailcast/scale/calibrate.h"
#include "tailcast/scale/experiments.h"
#include "tailcast/scale/sizing.h"

namespace tailcast::scale {

// 80 columns, but for the reasons of differences.
std::string CalibrationText(const std::vector<Calibrated>& all);
std::string ExperimentText(const Experiment& experiment);
std::string SizingText(const Demand& demand, const Sizing& sizing, const Costs& costs,
                       const ServerLimits& limits);

// An array of experiments, each with its cells and their moments.
std::string ExperimentsJson(const std::vector<Experiment>& experiments);

}  // namespace tailcast::scale
