/// Determines where a run starts: at a checkpoint, at a step of the folder of memory.disk, or at
/// first values.
/// Errors  UserError: what the readers of checkpoints and commits refuse; another model; an
///         optimizer whose states are missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/option_changes.h"
#include "strata/checkpoint/saver.h"
#include "strata/task/recipe.h"

namespace strata {

struct ResumePoint {
  std::string folder;  ///< the checkpoint's folder, or that of memory.disk; empty: none
  std::int64_t steps_done = 0;
  std::string decisions;              ///< the plan to follow; empty: any
  std::vector<OptionChange> changes;  ///< fields that differ from the previous run's
};

/// Reads no weights. `resume` as in TrainingRequest; empty: first values.
ResumePoint resume_point(const Recipe& recipe, const std::string& resume);

/// The steps and samples of that point. Throws UserError for a checkpoint of another model or task.
TrainingPosition resume_position(const Recipe& recipe, const std::string& resume);

/// Throws SystemError unless resume_point() accepts `resume`, which the run itself has saved;
/// called before the command that resumes from it is printed.
void require_resume_point(const Recipe& recipe, const std::string& resume);

/// A line that names the point and one line for each change; "" for first values.
std::string text_of(const ResumePoint& point);

}  // namespace strata
