#include <utility>

#include "strata/schedule/passes.h"

namespace strata::schedule {

Schedule lower(Schedule schedule, const Wiring& wiring, const Partition& partition,
               const LowerOptions& options) {
  schedule = with_layers(std::move(schedule), partition);
  if (!options.recompute.empty()) schedule = with_recompute(std::move(schedule), options.recompute);
  schedule = with_fetches(std::move(schedule), options.sharing);
  if (options.update) schedule = with_reductions(std::move(schedule), wiring, options.sharing);
  schedule = with_transfers(std::move(schedule), wiring, partition);
  if (options.update)
    schedule = with_update(std::move(schedule), wiring, partition, options.sharing);
  return schedule;
}

}  // namespace strata::schedule
