/// Combines what every rank sent in a step into one record.
///
/// Threads  collective.
#pragma once

#include <cstdint>

#include "strata/comm/group.h"
#include "strata/report/metrics.h"
#include "strata/train/step_sums.h"

namespace strata {

class SentStatistics {
 public:
  /// Does not count what was sent until now, such as these statistics themselves.
  void restart(const MeshGroups& groups);

  /// Adds this rank's bytes since restart(). StepSums::share() fills in `record`.
  void add(StepSums& sums, const MeshGroups& groups, SentBytes& record) const;

 private:
  SentBytes before_;
};

}  // namespace strata
