/// Holds the numbers beside tensors that a step's actions read and write, in one block that a device can own:
/// a step then need not ask the host between its first action and its update, and a recorded step reads
/// the numbers of the step that it is replayed for.
///
/// The host sets the first fields when a step begins, by one copy of kStepBegunBytes; the carried ones stay
/// where they are from step to step; the found ones are written by the step's actions and read by the
/// host behind the last of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace strata {

struct StepScalars {
  // Set when the step begins.
  std::int64_t step = 0;  ///< counts from 0
  double learning_rate = 0;
  double inverse_valid_tokens = 1;  ///< of the whole step
  std::int64_t first_sample = 0;    ///< of this replica's first micro-batch
  std::int64_t has_gradients = 1;   ///< 0: none that could update are there yet
  std::int64_t updates = 1;         ///< 0: gradients alone are wanted, and nothing carried changes
  // Carried. The optimizer counts this step's update as step + 1 - skipped_updates.
  double loss_scale = 1;  ///< what gradients are larger by until the update
  std::int64_t may_skip =
      0;  ///< the scale changes, and a gradient that isn't finite costs the update
  std::int64_t good_steps = 0;       ///< since the scale last changed
  std::int64_t skipped_updates = 0;  ///< before this step; behind it, with this one
  // Found by the step; the same on every rank once kReduceNormAndLoss ran.
  double loss = 0;        ///< sum over the valid tokens
  double squares = 0;     ///< of the gradient's elements, with the loss scale
  double norm = 0;        ///< of the gradient, before clipping, without the loss scale
  double factor = 1;      ///< what the update multiplies gradients by
  std::int64_t skip = 0;  ///< 1: no update
};

inline constexpr std::size_t kStepBegunBytes = offsetof(StepScalars, loss_scale);

static_assert(std::is_trivially_copyable_v<StepScalars> && std::is_standard_layout_v<StepScalars>);

}  // namespace strata
