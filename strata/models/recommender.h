/// Builds the dense net of a recommender, which reads numbers and the pooled rows of its
/// categorical features. The rows themselves are stored elsewhere (embed/) and receive the net's
/// gradient.
///
///     const Sequential model = make_recommender(options, {.numeric = 5, .row_widths = {8, 8, 8}});
///
/// Source  DLRM: Naumov et al. 2019; DCN-v2: Wang et al. 2021; deep and wide: Cheng et al. 2016.
/// Shapes  B samples: "numeric" [B, n] fp32; "rows" [B, sum of the features' widths] fp32, features
///         concatenated in their order; "labels" [B] fp32 or int64, negative for samples that do
///         not count.
/// Errors  UserError: fields that contradict the kind, the inputs or each other; tensor
///         parallelism, 16 bit.
#pragma once

#include <vector>

#include "strata/models/recommender_options.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

enum class RecommenderOutput { kLoss, kLogits };

/// kLoss: batch inputs "numeric", "rows" (whose gradient is returned) and "labels"; the last layer
/// is the loss. kLogits: the first two; the last layer returns the scores [B]. Weights have the
/// same names.
Sequential make_recommender(const RecommenderOptions& options, const RecommenderInputs& inputs,
                            RecommenderOutput output = RecommenderOutput::kLoss,
                            TensorSplit split = {}, at::ScalarType precision = at::kFloat);

/// The specs of the batch inputs, in their order, for so many samples.
std::vector<TensorSpec> recommender_batch(const RecommenderInputs& inputs, std::int64_t samples,
                                          RecommenderOutput output = RecommenderOutput::kLoss);

}  // namespace strata
