/// Makes the clock of `strata train` from its arguments and recipe.
#pragma once

#include "strata/cli/arguments.h"
#include "strata/clock/run_clock.h"
#include "strata/run/training_start.h"

namespace strata {

/// The exit code of a run that missed its target.
inline constexpr int kTargetMissed = 5;

ClockOptions clock_options(const TrainArguments& arguments, const Recipe& recipe);
/// `start`: in process 0.
RunFacts run_facts(const Recipe& recipe, const TrainingStart& start);
RunStatus status_of(const TrainingResult& result);
/// "target   accuracy>=0.9 missed: 0.8814 after the last step"; empty: no target.
std::string target_line(const TrainingResult& result);

}  // namespace strata
