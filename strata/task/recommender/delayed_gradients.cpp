#include "strata/task/recommender/delayed_gradients.h"

#include <utility>

namespace strata {

void DelayedGradients::filter(std::span<const at::Tensor> gradients) {
  std::vector<at::Tensor> now;
  for (const at::Tensor& gradient : gradients) now.push_back(gradient.clone());
  waiting_.push_back(std::move(now));
  if (waiting_.size() <= steps_) return;
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].copy_(waiting_.front()[i]);
  waiting_.pop_front();
}

}  // namespace strata
