#include "strata/optim/step_end.h"

#include <cmath>

namespace strata {

void sum_layers(const double* blocks, std::span<const LayerBlocks> layers, double* sums) {
  for (const LayerBlocks& layer : layers)
    sums[layer.target] = ordered_sum({blocks + layer.begin, blocks + layer.end});
}

void end_step(std::span<const double> sums, double clip, StepScalars& scalars) {
  const double squares = ordered_sum(sums.first(sums.size() - 1));
  end_step(squares, std::sqrt(squares), sums.back(), clip, scalars);
}

}  // namespace strata
