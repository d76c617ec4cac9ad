/// Gives access to the numbers of an update in host memory. Weights go to a function in pieces;
/// those in two halves (update_kernels.h) are joined piece by piece in the cache.
///
/// Shapes   weights in host memory, checked by the caller.
/// Threads  any, on ranges that don't overlap.
/// Errors   InternalError: a tensor of another length or dtype, or not contiguous, or of a device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "strata/base/errors.h"
#include "strata/optim/optimizer.h"

namespace strata {

inline constexpr std::int64_t kJoinedWeights = 1024;  ///< elements of a piece of joined weights

/// The elements of an fp32 tensor.
inline float* host_floats(const at::Tensor& x, std::int64_t numel) {
  STRATA_CHECK(x.is_cpu() && x.is_contiguous() && x.scalar_type() == at::kFloat,
               "optim.host_floats");
  STRATA_CHECK_EQ(x.numel(), numel, "optim.host_floats");
  return x.data_ptr<float>();
}

/// Calls f(weights, begin, n), which may change the n weights from `begin` on.
template <typename F>
void change_weights(const UpdateRange& range, std::int64_t begin, std::int64_t end, F f) {
  if (!range.remainder.defined())
    return f(range.weights.data_ptr<float>() + begin, begin, end - begin);
  float joined[kJoinedWeights];
  for (; begin < end; begin += kJoinedWeights) {
    const std::int64_t n = std::min(kJoinedWeights, end - begin);
    const kernels::SplitWeights halves{
        static_cast<std::uint16_t*>(range.weights.data_ptr()) + begin,
        static_cast<std::uint16_t*>(range.remainder.data_ptr()) + begin};
    kernels::join_weights(halves, joined, n);
    f(joined, begin, n);
    kernels::split_weights(joined, halves, n);
  }
}

/// Calls f(weights) for at most kJoinedWeights weights, which it reads only.
template <typename F>
void read_weights(const UpdateRange& range, std::int64_t begin, std::int64_t end, F f) {
  if (!range.remainder.defined()) return f(range.weights.const_data_ptr<float>() + begin);
  float joined[kJoinedWeights];
  kernels::join_weights({static_cast<std::uint16_t*>(range.weights.data_ptr()) + begin,
                         static_cast<std::uint16_t*>(range.remainder.data_ptr()) + begin},
                        joined, end - begin);
  f(static_cast<const float*>(joined));
}

}  // namespace strata
