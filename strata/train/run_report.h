/// Gathers what a run planned and did into its HTML report.
#pragma once

#include <string>

#include "strata/train/training_run.h"

namespace strata {

void write_run_report(const std::string& path, const Recipe& recipe, const PlannedRun& run,
                      const TrainingResult& result);

}  // namespace strata
