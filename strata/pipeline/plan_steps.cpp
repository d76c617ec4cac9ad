#include "strata/pipeline/plan_steps.h"

#include <utility>

namespace strata {

StepPlan plan_steps(const Sequential& model, StepDecisions decisions) {
  LayerSet with_weights;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (model.layout(layer).own_numel > 0) with_weights.add(layer);
  decisions.sequence_parallel = model.split().sequence;
  return StepPlan(model.dataflow(), with_weights, std::move(decisions));
}

}  // namespace strata
