/// Compares, on this processor, what decoding computes with what training computes for whole
/// samples, bit by bit.
///
/// The order of sums of MKL, oneDNN and ATen depends on the processor. Decoding follows it by rules
/// (strata/nn/host) that were tested on some; this check tests them on the one at hand.
///
/// Threads  no ranks may run in this process: it starts one.
/// Cost     about a tenth of a second.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/comm/tensor_parallel.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

/// The first operation whose bits differ, for weights and values of `precision`: "products of 1
/// row", "attention", ..., "logits of a model". Empty if the logits of a server equal training's.
std::string decoding_differs_in(at::ScalarType precision);

/// One whole weight, fp32, by its name in checkpoints ("block0.norm1.weight").
using WeightSource =
    std::function<at::Tensor(const std::string& name, const std::vector<std::int64_t>& shape)>;

/// The logits after every token of a whole sample, [T, V] fp32, as evaluation computes them.
/// `model`: with the logits as its output. A rank of `group` calls it together with the others.
at::Tensor whole_logits(const Sequential& model, const TensorParallel* group,
                        const std::vector<std::int64_t>& tokens, const WeightSource& weights);

}  // namespace strata
