/// Stands for the ranks that have the other tokens of the samples, for measurements: a rank does
/// its own work, and receives zeros at once. It is the first rank of a ring, or the last one if
/// ranks exchange heads: it has the most memory.
#pragma once

#include "strata/comm/context_parallel.h"

namespace strata {

class LoneContext final : public ContextParallel {
 public:
  explicit LoneContext(const ContextSplit& split) : split_(split) {}

  int rank() const override { return split_.in_blocks() ? 0 : split_.ranks - 1; }
  const ContextSplit& split() const override { return split_; }
  MessageTag begin() const override { return {}; }
  void send(int peer, const MessageTag& tag, at::Tensor x) const override;
  at::Tensor receive(int peer, const MessageTag& tag, at::IntArrayRef sizes,
                     const at::TensorOptions& options) const override;

 private:
  ContextSplit split_;
};

}  // namespace strata
