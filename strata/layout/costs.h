/// Defines the costs of a model from which plans are made: bytes from shape inference, seconds from
/// a probe.
///
/// Units  bytes and seconds for one micro-batch of full size; a shorter one scales linearly.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/layout/recompute.h"

namespace strata {

/// Attention of one micro-batch on a rank, in 16 bit. 0 heads: the layer has no attention, or runs
/// it in fp32, whose algorithm needs no workspace.
struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t heads = 0;
  std::int64_t tokens = 0;
  std::int64_t attended = 0;  ///< tokens that these attend to, half of them on average; 0: `tokens`
  std::int64_t head_width = 0;
  bool shares_keys = false;  ///< heads that share keys and values get copies of them
  bool runs_again = false;   ///< backward computes it again
};

/// The work of a layer besides matrix products, as the layer itself states it. The defaults are
/// upper bounds for a small layer such as an embedding or a head.
struct LayerWork {
  // Kernels that a device launches when the layer runs operator by operator.
  int forward_kernels = 3;
  int backward_kernels = 14;
  // Bytes of the whole tensors that tensor-parallel ranks sum in this layer.
  std::int64_t forward_sum_bytes = 0;
  std::int64_t backward_sum_bytes = 0;
  // Bytes that a rank sends to others that have a part of the same samples (axis cp), on average.
  double forward_context_bytes = 0;
  double backward_context_bytes = 0;
  // Messages of these that wait for one another.
  int forward_context_messages = 0;
  int backward_context_messages = 0;
  AttentionShape attention = {};
  /// that backward makes again instead of reading what forward saved; without cheap operations
  std::int64_t remade_bytes = 0;
};

struct LayerCost {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;      ///< without the recompute, which costs forward_seconds
  double weight_seconds = 0;        ///< of these, the second half of a divided backward
  double update_seconds = 0;        ///< optimizer, once a step
  std::int64_t weight_bytes = 0;    ///< the flat buffer
  std::int64_t matrix_bytes = 0;    ///< of these, matrices (nn/graph/layout.h: matrices_of())
  std::int64_t gradient_bytes = 0;  ///< flat gradients, including the buffers of tied uses
  std::int64_t state_bytes = 0;     ///< optimizer slots
  std::int64_t update_bytes = 0;    ///< that an update allocates until its end
  /// The same for ranks that share the states, in addition.
  std::int64_t shared_update_bytes = 0;
  std::int64_t sign_bytes = 0;     ///< messages that an update allocates, for the states of a rank
  std::int64_t replica_bytes = 0;  ///< copy of a tied weight whose owner is on another rank
  std::int64_t input_bytes = 0;    ///< size of the values that the layer reads
  /// Gradients of the mini-batch's inputs that the layer computes, for all samples. They stay
  /// allocated until the next step.
  std::int64_t batch_gradient_bytes = 0;
  /// saved by the layer's graph from forward to backward, without its inputs and outputs
  std::int64_t saved_bytes = 0;
  /// peak in forward, without inputs, outputs and saved tensors
  std::int64_t forward_transient_bytes = 0;
  /// peak in backward, without inputs, saved tensors and the gradients of outputs and inputs
  std::int64_t backward_transient_bytes = 0;
  /// kept between the halves of a divided backward, without the layer's inputs
  std::int64_t kept_bytes = 0;
  /// peaks in the halves, as backward_transient_bytes; the second's is beyond what is kept
  std::int64_t input_transient_bytes = 0;
  std::int64_t weight_transient_bytes = 0;
  std::int64_t no_grad_transient_bytes =
      0;  ///< peak in a forward that keeps no graph (what runs again in
          ///< backward, evaluation) beyond inputs and outputs
  /// The part of each transient that does not shrink with a shorter micro-batch, because it depends
  /// on the weights.
  std::int64_t forward_fixed_bytes = 0;
  std::int64_t backward_fixed_bytes = 0;
  std::int64_t no_grad_fixed_bytes = 0;
  /// false: the layer saves nothing but its inputs, so a recompute frees nothing
  bool recomputable = true;
  bool runs_python = false;  ///< Layer::runs_python()
  double forward_flops = 0;  ///< operations of one forward's products; 0: not counted
  LayerWork work = {};
  // Kernels that the rank's device launches for any size of micro-batch. 0: the rank computes
  // itself.
  int forward_launches = 0;
  int backward_launches = 0;
  int update_launches = 0;
};

/// Seconds a rank's host needs to enqueue work on its device. 0: the rank computes itself.
struct LaunchSeconds {
  double kernel = 0;   ///< per kernel of an action that runs operator by operator
  double segment = 0;  ///< per recorded segment, of any length
};

/// Lists which ranks share a device. A device runs one kernel at a time.
struct SharedDevices {
  /// per rank of the pipeline: its device; empty: each rank has its own
  std::vector<int> of_rank;
  /// per rank: how many times longer its work takes because ranks of other pipelines share its
  /// device
  std::vector<double> times_as_long;
  std::vector<std::vector<int>> ranks_on;  ///< per device: the stages' ranks, of all pipelines
  std::int64_t device_bytes = 0;           ///< memory of one device; 0: unknown
  bool empty() const { return of_rank.empty(); }
};

struct ValueCost {
  std::int64_t bytes = 0;
  double transfer_seconds = 0;  ///< between two ranks; its gradient costs the same
};

/// The costs of embeddings for one replica and step, in a model that reads them.
struct RowsCost {
  double wait_seconds = 0;  ///< from the last backward until the updated embeddings can be read
  double rank_seconds = 0;  ///< on the rank's own thread: samples to tensors, pooling
  /// of the busiest thread in parallel with it, or of the network: a lower bound of the step
  double beside_seconds = 0;
  double work_seconds = 0;  ///< processor seconds of all threads in parallel with it
  /// Processors that each replica needs, if its threads need more than the machine has; 0: they do
  /// not.
  double processors = 0;
  double rank_threads = 1;  ///< threads that a rank's compute keeps busy
  int staleness = 0;        ///< the number of updates by which embeddings may be stale
};

struct CostTable {
  std::vector<LayerCost> layers;
  std::vector<ValueCost> values;          ///< as Dataflow::values
  double overhead_seconds = 0;            ///< per action: interpreter and hand-over
  double latency_seconds = 0;             ///< from the end of a value's transfer to its arrival
  std::vector<double> micro_batch_scale;  ///< per micro-batch, 1 = full size; empty: all full
  int weight_element_bytes = 4;
  /// the tensors of the mini-batch, on every rank that reads them
  std::int64_t batch_bytes = 0;
  /// keys and values of served sequences, on every rank
  std::int64_t page_bytes = 0;
  /// a draft model that guesses for the served one; on one rank, counted on every rank
  std::int64_t draft_bytes = 0;
  /// memory of the GPU driver on every rank; not allocated as tensors
  std::int64_t context_bytes = 0;
  /// memory of NCCL on every rank; not allocated as tensors
  std::int64_t communicator_bytes = 0;
  std::int64_t workspace_bytes = 0;  ///< tensors that the GPU's libraries keep on every rank
  /// the allocator of a GPU rounds every buffer up to a multiple of this many bytes
  std::int64_t allocation_block = 1;
  LaunchSeconds launch;
  SharedDevices devices;
  RowsCost rows;
  double scale(int micro_batch) const {
    return micro_batch_scale.empty() || micro_batch < 0 ? 1.0 : micro_batch_scale[micro_batch];
  }
};

/// The costs of a model at each level of recompute inside its layers. An empty table: the level was
/// not computed, and no plan chooses it.
class LevelCosts {
 public:
  LevelCosts() = default;
  /// Layers cost the same with intermediates kept or cheaply recomputed.
  LevelCosts(const CostTable& costs) {
    (*this)[Recompute::kNone] = (*this)[Recompute::kCheap] = costs;
  }

  CostTable& operator[](Recompute level) { return tables_[static_cast<int>(level)]; }
  const CostTable& operator[](Recompute level) const { return tables_[static_cast<int>(level)]; }
  bool has(Recompute level) const { return !(*this)[level].layers.empty(); }
  /// The table with each layer at its level.
  CostTable at(const RecomputeLevels& levels) const {
    CostTable costs = (*this)[levels.base()];
    for (const int layer : levels.other_layers())
      costs.layers[layer] = (*this)[levels.of(layer)].layers[layer];
    return costs;
  }
  auto begin() { return tables_.begin(); }
  auto end() { return tables_.end(); }

 private:
  std::array<CostTable, kNumRecomputeLevels> tables_;
};

}  // namespace strata
