/// Multiplies by cuBLASLt directly. An algorithm is chosen once per shape and kept, so that a
/// product's bits depend neither on the addresses of its operands nor on earlier work. Gradients of
/// 16-bit operands are added to fp32 inside the product; bias, GELU, its gradient and sums of
/// columns are epilogues.
///
/// Operators multiply by ATen until this is verified on a GPU (libraries.h, multiply_by).
///
/// Shapes   as in primitives.h; rows may have gaps between them, but not elements of a row. GELU is
///          computed only in 16 bit, for rows that are a multiple of 16 bytes.
/// Threads  callable from any thread; uses the calling thread's device and stream.
/// Cost     a workspace of 32 MiB while the product is enqueued; the first product of a shape
///          queries cuBLASLt.
/// Errors   InternalError: cuBLASLt refused, or has no algorithm for the shape.
#pragma once

#include "strata/nn/cuda/libraries.h"

namespace strata {

/// Returns null if built without cuBLASLt's headers.
const CudaProducts* lt_products();

}  // namespace strata
