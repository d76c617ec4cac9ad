/// Exchanges messages between the ranks of a mesh's `cp` line.
///
/// Threads  as Group. A layer's graph keeps a pointer to it: it must outlive every backward.
#pragma once

#include "strata/comm/context_parallel.h"
#include "strata/comm/group.h"

namespace strata {

class ContextGroup final : public ContextParallel {
 public:
  /// `line`: the ranks that divide the samples of this rank; kept by reference.
  ContextGroup(Group& line, const ContextSplit& split) : line_(line), split_(split) {}

  int rank() const override { return line_.rank(); }
  const ContextSplit& split() const override { return split_; }

  MessageTag begin() const override { return line_.next_collective(); }
  void send(int peer, const MessageTag& tag, at::Tensor x) const override {
    line_.send(peer, tag, std::move(x));
  }
  at::Tensor receive(int peer, const MessageTag& tag, at::IntArrayRef sizes,
                     const at::TensorOptions& options) const override;

 private:
  Group& line_;
  ContextSplit split_;
};

}  // namespace strata
