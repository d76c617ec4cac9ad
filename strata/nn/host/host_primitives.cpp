#include "strata/nn/host/host_primitives.h"

namespace strata {

const Primitives& host_primitives() {
  static const HostProductPrimitives products;
  static const HostNormPrimitives norms;
  static const HostElementPrimitives elements;
  static const HostInteractionPrimitives interactions;
  static const HostAttentionPrimitives attention;
  static const HostRowPrimitives rows;
  static const HostLossPrimitives losses;
  static const Primitives all{products, norms, elements, interactions, attention, rows, losses};
  return all;
}

}  // namespace strata
