#include "strata/plan/planner.h"

#include "strata/base/errors.h"
#include "strata/base/quote.h"
#include "strata/plan/proposal.h"
#include "strata/plan/refusal.h"

namespace strata {
namespace {

void check_mode(const std::string& mode) {
  if (mode == "none" || mode == "cheap" || mode == "full" || mode == "auto") return;
  throw UserError({.operation = "plan.make",
                   .where = "memory.recompute",
                   .what = "no recompute mode has this name",
                   .expected = "none | cheap | full | auto",
                   .got = quote(mode),
                   .fix = "choose one of the names above"});
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
  check_mode(request.memory.recompute);
  Plan plan = propose(request);
  if (!fits(plan)) refuse(request, plan);
  plan.communication = communication_of(plan.schedule, request.dataflow, plan.partition,
                                        costs_for(request), plan.mesh, plan.sharding);

  schedule::check_schedule(plan.schedule, step_request(request, plan), request.dataflow,
                           plan.partition);
  return plan;
}

}  // namespace strata
