/// Keeps rows by feature and id: a state machine, so that the same updates in the same order leave the
/// same bytes on any machine, and a log of updates is as good as the rows.
///
/// Reading changes nothing: not who is admitted, not who is evicted, no row appears. All of that
/// happens in update() and end_step(), by counts of steps, never by a clock.
///
/// Threads  read(): any number, beside update() too; a row is read whole, before or after it. update()
///          and end_step(): one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

class RowStore {
 public:
  virtual ~RowStore() = default;

  virtual const std::vector<FeatureSpec>& features() const = 0;

  /// Rows [ids, width] as fp32. An id without a row reads as the row that it would get, or as zeros
  /// where it still has to be admitted.
  virtual void read(int feature, std::span<const std::uint64_t> ids,
                    std::span<float> rows) const = 0;

  /// Applies gradients [ids, width] of one step; `ids` are distinct and ascending. The optimizer's
  /// learning rate times `rate_factor` is used.
  virtual void update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
                      std::span<const float> gradients, double rate_factor) = 0;

  /// After the last feature's update of a step: rows that outlived their time go.
  virtual void end_step(std::int64_t step) = 0;
};

}  // namespace strata
