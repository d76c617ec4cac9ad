/// Lists the building blocks of operators on one kind of device, one interface per subject: tensors
/// in, tensors out.
///
/// The autograd Functions of ops/ hold the policy (what is saved, what runs again, borders of split
/// regions, where gradients accumulate) and call these. An implementation may provide one subject
/// and use another's for the rest: Primitives is only a list of references.
///
/// Shapes   contiguous unless an interface says otherwise; fp32, bf16 or fp16 alike, statistics and
///          sums fp32. Numbers are computed in fp32, and each result is rounded once.
/// Threads  const, callable from any thread; a host's work is shared among the caller's pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strata/device/device.h"
#include "strata/nn/primitives/attention.h"
#include "strata/nn/primitives/elements.h"
#include "strata/nn/primitives/interactions.h"
#include "strata/nn/primitives/losses.h"
#include "strata/nn/primitives/norms.h"
#include "strata/nn/primitives/products.h"
#include "strata/nn/primitives/rows.h"

namespace strata {

/// The implementations outlive it.
struct Primitives {
  const ProductPrimitives& products;
  const NormPrimitives& norms;
  const ElementPrimitives& elements;
  const InteractionPrimitives& interactions;
  const AttentionPrimitives& attention;
  const RowPrimitives& rows;
  const LossPrimitives& losses;
};

/// Rows per chunk of the head: a constant of each kind of device, because the weight gradient's
/// bits depend on it. A host's logits should stay in its cache, and a GPU needs enough work.
constexpr std::int64_t head_chunk_rows(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? 8192 : 1024;
}

/// Returns the primitives chosen for the tensor's kind of device (primitive_choice.h).
/// Errors  UserError: the build has none for it.
const Primitives& primitives(const at::Tensor& x);

/// For tests: while the object lives, this thread uses these primitives for tensors on the host.
class HostPrimitivesScope {
 public:
  explicit HostPrimitivesScope(const Primitives& primitives);
  ~HostPrimitivesScope();
  HostPrimitivesScope(const HostPrimitivesScope&) = delete;
  HostPrimitivesScope& operator=(const HostPrimitivesScope&) = delete;
};

const Primitives& host_primitives();
const Primitives& cuda_primitives();
/// ATen's primitives, if there is a CUDA device.
const Primitives& cuda_aten_primitives();

}  // namespace strata
