/// Normalises columns by their mean and variance: those of the micro-batch in training, running ones
/// otherwise.
///
/// Running statistics are weights of the layer that no gradient reaches (WeightSpec::momentum): the
/// backward adds the micro-batch's mean and unbiased variance to where a weight has its gradient, and
/// the step moves them once, by the mean over its micro-batches and replicas. So they are divided,
/// offloaded and saved as weights are, and do not depend on schedule, stages or recompute; with one
/// micro-batch a step they are PyTorch's. Samples whose labels are ignored count like others.
///
/// Source  Ioffe & Szegedy 2015.
/// Shapes  x [B, C], weights [C], fp32.
/// Errors  UserError: a micro-batch of one sample in training.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "strata/nn/layer.h"

namespace strata {

struct BatchNorm {
  at::Tensor gain, bias;
  at::Tensor running_mean, running_variance;
  double epsilon = 1e-5;
};

/// Names begin with `prefix`; in the order of BatchNorm's tensors.
std::vector<WeightSpec> batch_norm_weights(const std::string& prefix, std::int64_t width);

at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, const ForwardContext& context);

}  // namespace strata
