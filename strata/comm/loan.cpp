#include "strata/comm/loan.h"

#include <cstring>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/remote_tensor.h"

namespace strata {

Loan::Loan(Message message)
    : local_(std::move(message.tensor)), remote_(std::move(message.remote)) {}

std::int64_t Loan::numel() const { return remote_ ? remote_->numel() : local_.numel(); }

at::ScalarType Loan::dtype() const { return remote_ ? remote_->dtype() : local_.scalar_type(); }

const void* Loan::data() const { return remote_ ? nullptr : local_.const_data_ptr(); }

void Loan::read(std::int64_t first, std::int64_t count, void* to) const {
  if (remote_) return remote_->read(first, count, to);
  STRATA_CHECK(local_.is_non_overlapping_and_dense() && first >= 0 && count >= 0 &&
                   first + count <= local_.numel(),
               "comm.read");
  const std::size_t element = local_.element_size();
  const auto* from = static_cast<const char*>(local_.const_data_ptr());
  if (count > 0)
    std::memcpy(to, from + static_cast<std::size_t>(first) * element,
                static_cast<std::size_t>(count) * element);
}

at::Tensor Loan::tensor() const { return remote_ ? remote_->copy() : local_; }

}  // namespace strata
