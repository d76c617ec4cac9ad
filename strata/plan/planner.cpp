#include "strata/plan/planner.h"

#include "strata/base/errors.h"
#include "strata/plan/proposal.h"
#include "strata/plan/refusal.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

void check_mode(const std::string& mode) {
  if (mode == "none" || mode == "cheap" || mode == "full" || mode == "auto") return;
  throw UserError({.operation = "plan.make",
                   .where = "memory.recompute",
                   .what = "no recompute mode has this name",
                   .expected = "none | cheap | full | auto",
                   .got = "'" + mode + "'",
                   .fix = "choose one of the names above"});
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
  check_mode(request.memory.recompute);
  Plan plan = propose(request);
  if (!fits(plan)) refuse(request, plan);
  plan.communication = communication_of(plan.schedule, request.wiring, plan.partition,
                                        costs_for(request), plan.mesh, plan.sharding);

  schedule::ValidateOptions options{
      .backward = request.schedule != "forward",
      .sharing = sharing_of(plan.sharding, request.wiring, plan.costs)};
  for (int r = 0; r < request.shape.ranks; ++r) {
    options.in_flight_bound.push_back(
        schedule::in_flight_bound(request.schedule, request.shape, r));
  }
  schedule::validate(plan.schedule, request.wiring, plan.partition, options);
  return plan;
}

}  // namespace strata
