/// Estimates a stage from its layers alone, for the partitioner; the ledger has the exact bytes.
///
/// Units  seconds and bytes of a full micro-batch.
/// Cost   linear in the layers of the stage.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/schedule/costs.h"
#include "strata/schedule/wiring.h"

namespace strata {

struct StageEstimate {
  double seconds = 0;                 ///< forward, backward, recompute, waiting for transfers
  std::int64_t fixed_bytes = 0;       ///< weights, gradients, states, replicas
  std::int64_t activation_bytes = 0;  ///< of each micro-batch in flight
  std::int64_t transient_bytes = 0;   ///< on top, while the worst layer runs
  std::int64_t boundary_bytes = 0;    ///< of values that enter the stage from others
};

/// Knows a model; estimates any range of its layers. References must outlive it.
class StageEstimator {
 public:
  /// recompute[l] != 0: layer l runs again; empty: none. With `transfers`, a stage waits for the
  /// values that enter it and for the gradients of those that leave it, wherever their other end
  /// is.
  StageEstimator(const Wiring& wiring, const CostTable& costs, const std::vector<char>& recompute,
                 bool transfers);

  StageEstimate operator()(LayerRange layers) const;

 private:
  void add_layer(StageEstimate& estimate, LayerRange layers, int layer) const;
  void add_values(StageEstimate& estimate, LayerRange layers, int layer) const;
  std::int64_t transient_bytes(int layer) const;

  const Wiring* wiring_;
  const CostTable* costs_;
  std::vector<char> recompute_;
  bool transfers_;
  std::vector<std::vector<int>> inputs_;   ///< per layer: values
  std::vector<std::vector<int>> outputs_;  ///< per layer: values
  std::vector<std::vector<int>> owners_;   ///< per layer: owners of the ties that it uses
};

}  // namespace strata
