/// Updates a row with its optimizer, vectorised for the processor that runs it (Highway).
///
/// The bits of an element depend on its values and on constants only, never on the width of
/// vectors: every operation is one that IEEE 754 rounds correctly, no operations are fused, sums
/// over a row have a fixed order, and a NaN is written as 0x7FC00000.
///
/// Source   Adagrad (Duchi et al. 2011), row-wise Adagrad (Gupta et al. 2014), Adam (Kingma & Ba
///          2015), AdamW (Loshchilov & Hutter 2019), FTRL-proximal (McMahan et al. 2013).
/// Threads  any.
#pragma once

#include "strata/rowserver/feature.h"

namespace strata::kernels {

/// One update of a row with values w, gradient g and states:
///
///     SGD, Adagrad, Adam   g = g + weight_decay w
///     SGD          w = w - rate g
///     momentum     b = momentum b + g,  w = w - rate b
///     Adagrad      s = s + g g,  w = w - rate g / (sqrt(s) + epsilon)
///     row-wise     s = s + mean(g g), one s per row
///     Adam, AdamW  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g g
///                  w = w kept - size m / (sqrt(v) root_scale + epsilon)
///                  size = rate / (1 - beta1^t), root_scale = 1 / sqrt(1 - beta2^t);
///                  kept = 1 for Adam, 1 - rate weight_decay for AdamW;
///                  t is the number of updates of this row, including this one
///     FTRL         z = z + g - (sqrt(n + g g) - sqrt(n)) / rate w,  n = n + g g
///                  w = 0 where |z| <= l1, otherwise
///                  w = (sign(z) l1 - z) / ((sqrt(n) + epsilon) / rate + l2)
struct RowUpdate {
  RowOptimizerKind kind = RowOptimizerKind::kAdagrad;
  float rate = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float momentum = 0;
  float mean_kept = 0, mean_share = 0;
  float square_kept = 0, square_share = 0;
  float size = 0, root_scale = 0, kept = 1;
  float l1 = 0, l2 = 0;
};

/// Writes the new values to `out`, which may be `values`.
void update_row(const RowUpdate& update, const float* values, const float* gradient, float* states,
                float* out, int width);

}  // namespace strata::kernels
