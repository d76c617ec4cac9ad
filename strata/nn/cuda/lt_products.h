/// Multiplies by cuBLASLt directly: an algorithm is chosen once a shape and kept, so that a product's bits depend
/// neither on where its operands lie nor on what ran before; gradients of 16-bit operands are added to fp32
/// inside the product; bias, GELU, its gradient and sums of columns are epilogues.
///
/// Operators multiply by ATen until this has run on a GPU (libraries.h, multiply_by).
///
/// Shapes   as in primitives.h; rows may have gaps, elements of a row may not. GELU is made in 16 bit alone, of
///          rows that are a multiple of 16 bytes.
/// Threads  callable from any thread; the tensors' device is the calling thread's, and so is the stream.
/// Cost     a workspace of 32 MiB while the product is enqueued; the first product of a shape asks cuBLASLt.
/// Errors   InternalError: cuBLASLt refused, or has no algorithm for the shape.
#pragma once

#include "strata/nn/cuda/libraries.h"

namespace strata {

/// Null: built without cuBLASLt's headers.
const CudaProducts* lt_products();

}  // namespace strata
