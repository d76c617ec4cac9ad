/// Joins the ranks that divide the tokens of every sample (axis `cp`), for operators that need
/// other ranks' tokens. comm/context_group.h implements it; a null pointer stands for whole
/// samples.
///
/// Threads  collective: all ranks of the group run the same operators in the same order.
/// Errors   Cancelled when another rank failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/comm/message.h"
#include "strata/layout/context_split.h"

namespace strata {

class ContextParallel {
 public:
  virtual ~ContextParallel() = default;
  virtual int rank() const = 0;
  virtual const ContextSplit& split() const = 0;
  int size() const { return split().ranks; }

  /// The tag of the next operator's messages, which may use the tag's consumer and micro-batch.
  virtual MessageTag begin() const = 0;
  /// Never waits. The sender must not write to the tensor again; the receiver may write to it only
  /// if the sender does not read it again.
  virtual void send(int peer, const MessageTag& tag, at::Tensor x) const = 0;
  /// `sizes`, `options`: of the tensor that the peer sends.
  virtual at::Tensor receive(int peer, const MessageTag& tag, at::IntArrayRef sizes,
                             const at::TensorOptions& options) const = 0;
};

}  // namespace strata
