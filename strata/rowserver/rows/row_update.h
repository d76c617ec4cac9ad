/// Updates a row by its optimizer, vectorised for the machine that runs it (Highway).
///
/// An element's bits depend on its own values and on constants alone, never on the width of vectors:
/// operations are those that IEEE 754 rounds correctly, none are fused, sums over a row have a fixed
/// order, and a NaN is written as 0x7FC00000.
///
/// Source   Adagrad (Duchi et al. 2011), row-wise Adagrad (Gupta et al. 2014), Adam (Kingma & Ba 2015),
///          AdamW (Loshchilov & Hutter 2019), FTRL-proximal (McMahan et al. 2013).
/// Threads  any.
#pragma once

#include "strata/rowserver/feature.h"

namespace strata::kernels {

/// One update of a row, from values w, gradient g and states:
///
///     SGD, Adagrad, Adam   g = g + weight_decay w
///     SGD          w = w - rate g
///     momentum     b = momentum b + g,  w = w - rate b
///     Adagrad      s = s + g g,  w = w - rate g / (sqrt(s) + epsilon)
///     row-wise     s = s + mean(g g), one s a row
///     Adam, AdamW  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g g
///                  w = w kept - size m / (sqrt(v) root_scale + epsilon)
///                  size = rate / (1 - beta1^t), root_scale = 1 / sqrt(1 - beta2^t), kept = 1, AdamW's
///                  1 - rate weight_decay; t is the number of updates of this row, this one included
///     FTRL         z = z + g - (sqrt(n + g g) - sqrt(n)) / rate w,  n = n + g g
///                  w = 0 where |z| <= l1, else (sign(z) l1 - z) / ((sqrt(n) + epsilon) / rate + l2)
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

/// `out` becomes the new values; it may be `values`.
void update_row(const RowUpdate& update, const float* values, const float* gradient, float* states,
                float* out, int width);

}  // namespace strata::kernels
