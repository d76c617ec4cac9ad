/// Says where a run begins: at a checkpoint, at a step of the folder of memory.disk, or anew.
///
/// Errors  UserError: what the readers of checkpoints and commits refuse; another model; an optimizer
///         whose states are not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/option_changes.h"
#include "strata/train/recipe.h"

namespace strata {

struct ResumePoint {
  std::string folder;  ///< the checkpoint's, or that of memory.disk; empty: none
  std::int64_t steps_done = 0;
  std::string decisions;              ///< the plan that has to be followed; empty: any
  std::vector<OptionChange> changes;  ///< what the run before did otherwise
};

/// Reads no weights. `resume` as TrainingRequest has it; the beginning for an empty one.
ResumePoint resume_point(const Recipe& recipe, const std::string& resume);

/// Refuses (SystemError) unless resume_point() accepts `resume`, which the run itself has saved: before
/// the command that goes on from it is printed.
void require_resume_point(const Recipe& recipe, const std::string& resume);

/// A line of what is gone on from and one of each change, for people; "" for the beginning.
std::string text_of(const ResumePoint& point);

}  // namespace strata
