/// Prints what `strata serve` would need and reach, before anything is loaded: `strata plan
/// --serve`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/plan/machine_profile.h"
#include "strata/serve/service_options.h"

namespace strata {

/// Numbers of answers at once that are worth a row: 1, 4, 16 and so on, and the most.
std::vector<std::int64_t> numbers_at_once(std::int64_t most);

struct ServingForecast {
  std::string text;
  std::string json;
};

/// `measure`: measures passes of a few blocks on this machine; false: only bytes. `machine`: the
/// rates of its tiers.
/// Errors  UserError: what serving_request() and plan_serving() refuse.
ServingForecast forecast_serving(const ServedModel& served, const ServiceOptions& options,
                                 const MachineProfile& machine, bool measure);

}  // namespace strata
