/// Shows a plan to Python: as text, JSON, and the page with its picture.
#pragma once

#include <string>

#include "strata/run/training_run.h"

namespace strata {

struct PlanTexts {
  std::string text;  ///< as `strata plan` prints it
  std::string json;  ///< as `strata plan --json` writes it
  std::string html;  ///< the report of a run that has not begun
};

PlanTexts plan_texts(const Recipe& recipe, const PlannedRun& run);

}  // namespace strata
