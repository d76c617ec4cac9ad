/// Holds what another rank lent: a tensor of this process, or one in the memory of a neighbour,
/// which is read from there. Its end returns the loan.
///
/// Threads  one at a time; ends before its rank does.
/// Errors   Cancelled when the lender is gone or the run has failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "strata/comm/message.h"

namespace strata {

class Loan {
 public:
  explicit Loan(Message message);
  explicit Loan(at::Tensor tensor) : local_(std::move(tensor)) {}

  std::int64_t numel() const;
  at::ScalarType dtype() const;

  /// Its elements, if they are in this process; else null.
  const void* data() const;

  /// Copies some elements, counted as they lie in memory.
  void read(std::int64_t first, std::int64_t count, void* to) const;

  /// The lent tensor itself, or a copy of the remote one, charged to this thread's account.
  at::Tensor tensor() const;
  operator at::Tensor() const { return tensor(); }  // NOLINT: for those who read all of it anyway

 private:
  at::Tensor local_;  // undefined: remote
  std::shared_ptr<const RemoteTensor> remote_;
};

}  // namespace strata
