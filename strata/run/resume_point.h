/// Says where a run starts: at a checkpoint, at a step of the folder of memory.disk, or at first values.
///
/// Errors  UserError: what the readers of checkpoints and commits refuse; another model; an optimizer
///         whose states are not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/option_changes.h"
#include "strata/checkpoint/saver.h"
#include "strata/task/recipe.h"

namespace strata {

struct ResumePoint {
  std::string folder;  ///< the checkpoint's, or that of memory.disk; empty: none
  std::int64_t steps_done = 0;
  std::string decisions;              ///< the plan that has to be followed; empty: any
  std::vector<OptionChange> changes;  ///< fields that the run before had otherwise
};

/// Reads no weights. `resume` as in TrainingRequest; first values for an empty one.
ResumePoint resume_point(const Recipe& recipe, const std::string& resume);

/// The steps and samples of that point; refuses a checkpoint of another model or task.
TrainingPosition resume_position(const Recipe& recipe, const std::string& resume);

/// Refuses (SystemError) unless resume_point() accepts `resume`, which the run itself has saved: before
/// the command that resumes from it is printed.
void require_resume_point(const Recipe& recipe, const std::string& resume);

/// A line that names the point and one for each change, for people; "" for first values.
std::string text_of(const ResumePoint& point);

}  // namespace strata
