#include "strata/train/sent_statistics.h"

namespace strata {

void SentStatistics::restart(const MeshGroups& groups) {
  for (const AxisInfo& axis : kAxes) before_.axes[axis.id] = groups[axis.id].sent_bytes();
  before_.other = groups.world.sent_bytes();
}

void SentStatistics::add(StepSums& sums, const MeshGroups& groups, SentBytes& record) const {
  for (const AxisInfo& axis : kAxes)
    sums.sum(groups[axis.id].sent_bytes() - before_.axes[axis.id], &record.axes[axis.id]);
  sums.sum(groups.world.sent_bytes() - before_.other, &record.other);
}

}  // namespace strata
