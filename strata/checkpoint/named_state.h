/// Names one rank's part of a weight, optimizer state or counter of the whole model.
///
/// Units  offsets and lengths of runs in elements; the whole is row-major.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/nn/layout.h"

namespace strata {

class Lease;

struct NamedState {
  std::string name;                 ///< "block3.mlp.up.weight", "block3.mlp.up.weight.exp_avg"
  std::vector<std::int64_t> shape;  ///< of the whole
  at::Tensor local;                 ///< 1-D view of this rank's bytes; undefined without runs
  std::vector<Run> runs;            ///< elements of `local` and where they lie in the whole
  std::shared_ptr<const Lease> lease = {};  ///< keeps the bytes here while the state is used

  std::int64_t numel() const;  ///< of the whole

  /// `local` in the whole's shape; InternalError where this rank hasn't all of it.
  at::Tensor tensor() const;
};

/// Copies the elements of `states` into the whole tensors of the same names, which it makes (zero)
/// where they aren't there yet.
void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole);

}  // namespace strata
