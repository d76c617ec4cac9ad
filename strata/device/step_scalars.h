/// Holds the scalars that a step's actions read and write in one block that a device can own: a
/// step then need not wait for the host between its first action and its update, and a recorded
/// step reads the scalars of the step that it is replayed for.
///
/// The host sets the first fields at the beginning of a step with one copy of kStepBegunBytes. The
/// carried fields stay from step to step. The step's actions write the result fields, and the host
/// reads them after the last action.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace strata {

struct StepScalars {
  // Set at the beginning of the step.
  std::int64_t step = 0;  ///< counts from 0
  double learning_rate = 0;
  double inverse_valid_tokens = 1;  ///< of the whole step
  std::int64_t first_sample = 0;    ///< of this replica's first micro-batch
  std::int64_t has_gradients = 1;   ///< 0: there are no gradients for an update yet
  std::int64_t updates = 1;         ///< 0: computes only gradients; carried fields stay
  // Carried. The optimizer counts this step's update as step + 1 - skipped_updates.
  double loss_scale = 1;  ///< factor on gradients until the update
  std::int64_t may_skip =
      0;  ///< the scale changes, and gradients that aren't finite skip the update
  std::int64_t good_steps = 0;       ///< since the scale last changed
  std::int64_t skipped_updates = 0;  ///< before this step; after it, including this one
  // Results of the step; the same on every rank after kReduceNormAndLoss.
  double loss = 0;        ///< sum over the valid tokens
  double squares = 0;     ///< of the gradient's elements, with the loss scale
  double norm = 0;        ///< of the gradient, before clipping, without the loss scale
  double factor = 1;      ///< the update multiplies gradients by this
  std::int64_t skip = 0;  ///< 1: no update
};

inline constexpr std::size_t kStepBegunBytes = offsetof(StepScalars, loss_scale);

static_assert(std::is_trivially_copyable_v<StepScalars> && std::is_standard_layout_v<StepScalars>);

}  // namespace strata
