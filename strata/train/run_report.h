/// Gathers what a run planned and did into its HTML report.
#pragma once

#include <string>

#include "strata/train/training_run.h"

namespace strata {

/// What the trained model wrote behind a prompt; empty: no sample.
struct TextSample {
  std::string prompt;
  std::string text;
};

void write_run_report(const std::string& path, const Recipe& recipe, const PlannedRun& run,
                      const TrainingResult& result, const TextSample& sample);

}  // namespace strata
