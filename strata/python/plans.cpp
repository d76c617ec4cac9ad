#include "strata/python/plans.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "strata/base/json_text.h"
#include "strata/base/scratch_folder.h"
#include "strata/cli/report_origin.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

std::string page_of(const Recipe& recipe, const PlannedRun& run) {
  const ScratchFolder folder;
  const std::string path = folder.path("plan.html");
  write_run_report(path, recipe, run, {}, {}, report_origin(recipe, "Python"));
  std::ifstream page(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(page), {}};
}

}  // namespace

PlanTexts plan_texts(const Recipe& recipe, const PlannedRun& run) {
  return {.text = plan_text(run.plan),
          .json = json_text(to_json(run.plan), 1),
          .html = page_of(recipe, run)};
}

}  // namespace strata
