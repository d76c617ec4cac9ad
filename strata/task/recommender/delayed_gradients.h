/// Applies every gradient a number of steps late, as asynchronous trainers of a dense net do.
///
/// The first steps have no gradients and change no weight. A checkpoint has none of the gradients
/// that wait.
///
/// Threads  the rank's.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "strata/pipeline/gradient_filter.h"

namespace strata {

class DelayedGradients final : public GradientFilter {
 public:
  explicit DelayedGradients(int steps) : steps_(static_cast<std::size_t>(steps)) {}

  bool has_gradients() const override { return waiting_.size() >= steps_; }
  void filter(std::span<const at::Tensor> gradients) override;

 private:
  std::size_t steps_;
  std::deque<std::vector<at::Tensor>> waiting_;  // the oldest step first
};

}  // namespace strata
