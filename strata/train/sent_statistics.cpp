#include "strata/train/sent_statistics.h"

namespace strata {
namespace {

// Ranks along dp and cp exchange gradients and shards in the group `weights`, whose bytes count for
// dp.
std::int64_t sent_along(const MeshGroups& groups, Axis axis) {
  const std::int64_t bytes = groups[axis].sent_bytes();
  return axis == Axis::kData ? bytes + groups.weights.sent_bytes() : bytes;
}

}  // namespace

void SentStatistics::restart(const MeshGroups& groups) {
  for (const AxisInfo& axis : kAxes) before_.axes[axis.id] = sent_along(groups, axis.id);
  before_.other = groups.world.sent_bytes();
}

void SentStatistics::add(StepSums& sums, const MeshGroups& groups, SentBytes& record) const {
  for (const AxisInfo& axis : kAxes)
    sums.sum(sent_along(groups, axis.id) - before_.axes[axis.id], &record.axes[axis.id]);
  sums.sum(groups.world.sent_bytes() - before_.other, &record.other);
}

}  // namespace strata
