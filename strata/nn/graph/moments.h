/// Combines moments of parts of a mini-batch by column: numbers of samples, means, and sums of
/// squared deviations from the mean. Nothing cancels, however far the mean is from 0.
///
/// Source   Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
///          sample variances".
/// Shapes   moments [3, C] fp64: samples, means, squared deviations; zeros for no samples.
/// Threads  any, on different moments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

at::Tensor no_moments(std::int64_t columns, const at::TensorOptions& options);

/// Returns the moments of `samples` samples with this mean and biased variance [C].
at::Tensor moments_of(std::int64_t samples, const at::Tensor& mean, const at::Tensor& variance);

/// Adds the moments of other samples: `sum` becomes the moments of both.
void add_moments(const at::Tensor& sum, const at::Tensor& part);

at::Tensor mean_of(const at::Tensor& moments);               ///< [C] fp64
at::Tensor unbiased_variance_of(const at::Tensor& moments);  ///< [C] fp64; for at least 2 samples

}  // namespace strata
