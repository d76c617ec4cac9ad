/// Implements the primitives on any device by libtorch (ATen) alone.
///
/// They are the reference for Strata's kernels: tested on a CPU against the Highway kernels
/// (aten_primitives_test.cpp), and the default on CUDA, where a kernel replaces one of them only
/// after a measurement on a GPU. Other sets of primitives may use single interfaces from here.
///
/// Bits     Dropout masks, copied rows and sums of two numbers are those of the Highway kernels.
///          Elsewhere sums have another order: results agree within rounding.
/// Cost     No fused kernels: each passes over memory several times, and temporaries are fp32.
///          Especially slow: dropout (Philox in about 200 int64 operations), the loss (several
///          passes over the logits), attention's gradient (runs its forward again), gradients of
///          16-bit weights where the device has no product with an fp32 result (operands are
///          widened). On a CPU one thread does the work.
/// Memory   Results are charged to the caller's account; temporaries are not, and no plan counts
///          them.
/// Threads  const, callable from any thread.
#pragma once

#include "strata/nn/primitives/primitives.h"

namespace strata {

const ProductPrimitives& aten_products();
const NormPrimitives& aten_norms();
const ElementPrimitives& aten_elements();
const InteractionPrimitives& aten_interactions();
const AttentionPrimitives& aten_attention();
const RowPrimitives& aten_rows();
const LossPrimitives& aten_losses();

/// All of them.
const Primitives& aten_primitives();

}  // namespace strata
