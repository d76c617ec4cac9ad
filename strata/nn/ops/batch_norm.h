/// Normalises columns by their mean and variance: those of the micro-batch in training, running
/// statistics otherwise.
///
/// Running statistics are weights of the layer without gradients (WeightSpec::statistic). The
/// backward adds the micro-batch's moments to those of the mini-batch, and the step moves the
/// statistics once, towards mean and unbiased variance of the whole mini-batch: of all its
/// micro-batches and replicas, like PyTorch's layer on the whole mini-batch. They are divided,
/// offloaded and saved like weights, and their bits do not depend on schedule, stages or recompute.
/// Samples with ignored labels count like others.
///
/// Source  Ioffe & Szegedy 2015; GPipe (Huang et al. 2019, section 2), with the deferred statistics
///         of torchgpipe's DeferredBatchNorm.
/// Shapes  x [B, C], weights [C], fp32.
/// Errors  UserError: a micro-batch of one sample in training.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "strata/nn/graph/layer.h"

namespace strata {

struct BatchNorm {
  at::Tensor gain, bias;
  at::Tensor running_mean, running_variance;
  double epsilon = 1e-5;
};

/// Specs in the order of BatchNorm's tensors; names begin with `prefix`.
std::vector<WeightSpec> batch_norm_weights(const std::string& prefix, std::int64_t width);

at::Tensor batch_norm(const at::Tensor& x, const BatchNorm& norm, const ForwardContext& context);

}  // namespace strata
