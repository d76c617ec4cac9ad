#include "strata/measure/trained_costs.h"

namespace strata {

CostTable with_trained_seconds(const Plan& plan, const std::vector<LayerSeconds>& trained) {
  CostTable costs = plan.costs;
  if (!trained.empty()) costs.devices = {};
  for (std::size_t layer = 0; layer < costs.layers.size() && layer < trained.size(); ++layer) {
    const LayerSeconds& own = trained[layer];
    LayerCost& cost = costs.layers[layer];
    if (own[LayerPart::kForward].samples > 0) cost.forward_seconds = own.forward();
    const bool halves = own[LayerPart::kWeights].samples > 0;
    if (halves) cost.weight_seconds = own.weights();
    if (halves || own[LayerPart::kBackward].samples > 0) cost.backward_seconds = own.backward();
    if (own[LayerPart::kUpdate].samples > 0 && !plan.mesh.sends_signs)
      cost.update_seconds = own.update();
  }
  return costs;
}

}  // namespace strata
