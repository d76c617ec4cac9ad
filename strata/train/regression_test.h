/// Makes a linear regression as a model, for tests that compute its gradients again with loops.
#pragma once

#include <functional>

#include "strata/data/batch.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

struct Regression {
  int width = 0;
  int samples = 0;  ///< of a step
  std::function<double(int step, int sample, int k)> input;
  std::function<double(int step, int sample)> label;
};

/// The weights [1, width], which decay, and half the squared error, summed over samples.
Sequential regression_model(int width);
MiniBatch regression_batch(const Regression& regression, int step);

}  // namespace strata
