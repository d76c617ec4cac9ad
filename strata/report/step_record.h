/// Holds what one finished step is known by: the progress line, metrics and the report all read it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace strata {

struct StepRecord {
  std::int64_t step = 0;     ///< steps finished, this one included: the first is 1
  double loss = 0;           ///< mean over the valid tokens of the step, nats
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;
  double step_seconds = 0;
  double bubble = 0;                        ///< idle share of all ranks' time
  std::vector<std::int64_t> peak_bytes{};   ///< one a rank
  std::optional<double> validation_loss{};  ///< if this step was followed by a validation, nats
  std::int64_t samples_seen = 0;            ///< since the beginning of training
};

}  // namespace strata
