/// Makes a linear regression as a model, for tests that compute its gradients again with loops.
#pragma once

#include <functional>
#include <vector>

#include "strata/data/batch.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

struct Regression {
  int width = 0;
  int samples = 0;  ///< of a step
  std::function<double(int step, int sample, int k)> input;
  std::function<double(int step, int sample)> label;
};

/// Each element of the weights, in their order, is multiplied by one input of a sample. The loss is
/// half the squared error of the sum of these products, summed over samples.
Sequential regression_model(const std::vector<WeightSpec>& weights);
MiniBatch regression_batch(const Regression& regression, int step);

}  // namespace strata
