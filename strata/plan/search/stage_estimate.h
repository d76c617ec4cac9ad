/// Estimates a stage from its layers alone, for the partitioner. The ledger has the exact bytes.
///
/// Units  seconds and bytes of a full micro-batch.
/// Cost   to build: linear in the model. To estimate: the values and ties that cross the ends of
///        the stage, for any number of layers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"

namespace strata {

struct StageEstimate {
  double seconds = 0;                 ///< forward, backward, recompute, waiting for transfers
  std::int64_t fixed_bytes = 0;       ///< weights, gradients, states, tied copies
  std::int64_t activation_bytes = 0;  ///< per micro-batch in flight
  std::int64_t transient_bytes = 0;   ///< in addition, while the worst layer runs
  std::int64_t boundary_bytes = 0;    ///< bytes of the values that the stage receives
};

/// Returns the maximum of a range of numbers.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<std::int64_t> numbers);
  std::int64_t operator()(int begin, int end) const;  ///< begin < end

 private:
  std::vector<std::vector<std::int64_t>> levels_;  // [k][i]: maximum of 2^k numbers from i
};

/// Estimates any range of a model's layers.
class StageEstimator {
 public:
  /// With `transfers`, a stage waits for the values that it receives and for the gradients of those
  /// that it sends, whatever rank their other end is on.
  StageEstimator(const Dataflow& dataflow, const CostTable& costs, const LayerSet& recompute,
                 bool transfers);

  StageEstimate operator()(LayerRange layers) const;

  /// Sums over the layers before `layer`: a lower bound of a stage's cost that grows with the stage
  /// at both ends. Never more than the estimate's seconds, fixed and activation bytes.
  double least_seconds(LayerRange layers) const;
  std::int64_t least_fixed_bytes(LayerRange layers) const;
  std::int64_t least_activation_bytes(LayerRange layers) const;

 private:
  // A value that crosses a boundary: produced before it, read after it.
  struct Crossing {
    int producer = 0;
    int next_reader = 0;
    bool read_before = false;
    bool differentiable = true;
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  // The layers that use weights of one first owner: their copies, summed in layer order.
  struct TieUses {
    std::vector<int> layers;
    std::vector<std::int64_t> bytes_before;  // [i]: bytes of the first i layers
    std::int64_t within(LayerRange range) const;
  };

  void add_layers(const CostTable& costs, const LayerSet& recompute);
  void add_values(const Dataflow& dataflow, const CostTable& costs);
  void add_ties(const Dataflow& dataflow, const CostTable& costs);

  bool transfers_;
  int num_layers_;
  // Sums over the layers before the index.
  std::vector<double> seconds_;
  std::vector<std::int64_t> fixed_bytes_;
  std::vector<std::int64_t> saved_bytes_;
  std::vector<std::int64_t> first_read_bytes_;  // bytes of values, at their first reader
  RangeMaximum transient_bytes_;
  std::vector<std::vector<Crossing>> crossings_;  // per boundary, before the layer
  std::map<int, TieUses> uses_;                   // by the first layer that owns one of the weights
};

}  // namespace strata
