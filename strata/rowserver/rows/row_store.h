/// Stores rows by feature and id as a state machine: the same updates in the same order leave the
/// same bytes on every machine, so a log of updates can replace the rows.
///
/// Reads change nothing: they neither admit nor evict nor create rows. Only update() and end_step()
/// do, by counts of steps, never by a clock.
///
/// Threads  read(): any number, in parallel with update(); a row is read whole, before or after its
///          update. update() and end_step(): one thread at a time; update() of different features:
///          in parallel where features_are_independent().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

class RowStore {
 public:
  virtual ~RowStore() = default;

  virtual const std::vector<FeatureSpec>& features() const = 0;

  /// Reads rows [ids, width] as fp32. An id without a row reads as its initial values, or as zeros
  /// if it is not admitted yet.
  virtual void read(int feature, std::span<const std::uint64_t> ids,
                    std::span<float> rows) const = 0;

  /// Applies gradients [ids, width] of one step; `ids` are distinct and ascending. The learning
  /// rate is the optimizer's times `rate_factor`.
  virtual void update(std::int64_t step, int feature, std::span<const std::uint64_t> ids,
                      std::span<const float> gradients, double rate_factor) = 0;

  /// Whether updates of different features in the next step give the same rows in any order and in
  /// parallel. `ids`: how many each feature updates.
  virtual bool features_are_independent(std::span<const std::size_t> /*ids*/) const {
    return false;
  }

  /// Runs after the last feature's update of a step: drops rows that exceeded their time to live.
  virtual void end_step(std::int64_t step) = 0;
};

}  // namespace strata
