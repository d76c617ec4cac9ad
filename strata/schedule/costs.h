/// The numbers about a model that plans are made of: bytes by shape inference, seconds by a probe.
///
/// Units  bytes and seconds for one micro-batch of full size; a shorter one scales linearly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Attention of one micro-batch on a rank, in 16 bit. 0 heads: none, or in fp32, which takes another
/// algorithm without workspaces.
struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t heads = 0;
  std::int64_t tokens = 0;
  std::int64_t head_width = 0;
  bool shares_keys = false;  ///< heads get copies of the keys and values that they share
};

/// What a layer does beside matrix products, as the layer itself states it. The defaults are the most
/// of a small layer, such as an embedding or a head.
struct LayerWork {
  // Kernels that a device launches for it, performed operator by operator.
  int forward_kernels = 3;
  int backward_kernels = 14;
  // Bytes of the whole tensors that tensor-parallel ranks sum for it.
  std::int64_t forward_sum_bytes = 0;
  std::int64_t backward_sum_bytes = 0;
  AttentionShape attention = {};
};

struct LayerCost {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;      ///< without the recompute, which costs forward_seconds
  double update_seconds = 0;        ///< optimizer, once a step
  std::int64_t weight_bytes = 0;    ///< the flat buffer
  std::int64_t gradient_bytes = 0;  ///< flat gradients, buffers of tied uses included
  std::int64_t state_bytes = 0;     ///< optimizer slots
  std::int64_t replica_bytes = 0;   ///< copy of a tied weight, if its owner lives on another rank
  std::int64_t input_bytes = 0;     ///< of the values that it reads
  /// Gradients that it gives of inputs of the mini-batch, for all samples: they live until the next step.
  std::int64_t batch_gradient_bytes = 0;
  std::int64_t saved_bytes = 0;  ///< kept by the layer's graph from forward to backward, its inputs
                                 ///< and outputs apart
  std::int64_t forward_transient_bytes = 0;   ///< peak in forward beyond inputs, outputs and saved
  std::int64_t backward_transient_bytes = 0;  ///< peak in backward beyond inputs, saved, the
                                              ///< output's gradient and the inputs' gradients
  std::int64_t no_grad_transient_bytes =
      0;  ///< peak in a forward that keeps no graph (what runs again in
          ///< backward, evaluation) beyond inputs and outputs
  /// Of the transients, what a shorter micro-batch needs, too: of weights, not of samples.
  std::int64_t forward_fixed_bytes = 0;
  std::int64_t backward_fixed_bytes = 0;
  std::int64_t no_grad_fixed_bytes = 0;
  bool recomputable = true;  ///< false: saves nothing beyond its inputs, so gains nothing
  double forward_flops = 0;  ///< of one forward's products; 0: not counted
  LayerWork work = {};
  // Kernels that the rank's device launches for it, however small the micro-batch; 0: the rank computes.
  int forward_launches = 0;
  int backward_launches = 0;
  int update_launches = 0;
};

/// Seconds of a rank's host to give its device work. 0: the rank does the work itself.
struct LaunchSeconds {
  double kernel = 0;   ///< each, of an action that is performed
  double segment = 0;  ///< of a recorded segment, whatever it holds
};

/// Which ranks compute on one device, that does one thing after another.
struct SharedDevices {
  std::vector<int> of_rank;  ///< of a pipeline, the device of each; empty: each has one for itself
  std::vector<double> times_as_long;       ///< what each does there, for ranks of other pipelines
  std::vector<std::vector<int>> ranks_on;  ///< per device: the stages' ranks, of all pipelines
  std::int64_t device_bytes = 0;           ///< of a device; 0: nobody knows
  bool empty() const { return of_rank.empty(); }
};

struct ValueCost {
  std::int64_t bytes = 0;
  double transfer_seconds = 0;  ///< between two ranks; its gradient costs the same
};

/// What the rows of embeddings cost a replica in a step, where a model reads any.
struct RowsCost {
  double wait_seconds = 0;    ///< from the last backward to the rows that its update has made
  double rank_seconds = 0;    ///< of the rank's own thread: samples to tensors, pooling
  double beside_seconds = 0;  ///< of the thread beside it, or of the network: no step is shorter
  /// Processors of the machine for each replica, where its threads need more than that; 0: they don't.
  double processors = 0;
  double rank_threads = 1;  ///< that a rank's compute keeps busy
  int staleness = 0;        ///< updates that rows may lack
};

struct CostTable {
  std::vector<LayerCost> layers;
  std::vector<ValueCost> values;          ///< as Dataflow::values
  double overhead_seconds = 0;            ///< per action: interpreter and hand-over
  std::vector<double> micro_batch_scale;  ///< per micro-batch, 1 = full size; empty: all full
  int weight_element_bytes = 4;
  std::int64_t batch_bytes = 0;    ///< the mini-batch's own tensors, on every rank that reads them
  std::int64_t context_bytes = 0;  ///< of a GPU's driver, on every rank; no tensor's
  std::int64_t communicator_bytes = 0;  ///< of NCCL, on every rank; no tensor's
  std::int64_t workspace_bytes = 0;     ///< what a GPU's libraries keep as tensors, on every rank
  std::int64_t allocation_block = 1;  ///< a GPU's allocator rounds every buffer up to these, bytes
  LaunchSeconds launch;
  SharedDevices devices;
  RowsCost rows;
  double scale(int micro_batch) const {
    return micro_batch_scale.empty() || micro_batch < 0 ? 1.0 : micro_batch_scale[micro_batch];
  }
};

}  // namespace strata
