#include "strata/python/plans.h"

#include <nlohmann/json.hpp>

#include "strata/base/json_text.h"
#include "strata/cli/report_origin.h"
#include "strata/plan/text/plan_text.h"

namespace strata {

PlanTexts plan_texts(const Recipe& recipe, const PlannedRun& run) {
  return {.text = plan_text(run.plan),
          .json = json_text(to_json(run.plan), 1),
          .html = run_report(recipe, run, {}, {}, report_origin(recipe, "Python"))};
}

}  // namespace strata
