#include "strata/nn/aten/aten_primitives.h"

namespace strata {

const Primitives& aten_primitives() {
  static const Primitives all{aten_products(),  aten_norms(), aten_elements(), aten_interactions(),
                              aten_attention(), aten_rows(),  aten_losses()};
  return all;
}

}  // namespace strata
