#include "strata/train/named_state.h"

#include <functional>
#include <numeric>

#include "strata/base/errors.h"

namespace strata {

std::int64_t NamedState::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

at::Tensor NamedState::tensor() const {
  const bool whole = runs.size() == 1 && runs[0].global == 0 && runs[0].numel == numel();
  if (!whole) {
    throw InternalError({.operation = "train.named_state",
                         .where = name,
                         .what = "this rank holds only a part of the state",
                         .expected = "one run of " + std::to_string(numel()) + " elements",
                         .got = std::to_string(runs.size()) + " runs",
                         .fix = ""});
  }
  return local.narrow(0, runs[0].local, numel()).view(shape);
}

}  // namespace strata
