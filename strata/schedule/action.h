/// Names everything a rank can do in a training step.
///
/// A step is data: one Program per rank, an ordered list of Actions. Builders emit the compute
/// actions of whole stages (forward, backward). Passes split them by layer and add recomputes,
/// transfers, ties and the update. Any Machine that performs Actions can run a Program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/layout/layer_range.h"

namespace strata {

enum class Op : std::uint8_t {
  kForward,    ///< layers, micro_batch
  kRecompute,  ///< layers, micro_batch: repeats the forward and saves what the backward needs
  kBackward,   ///< layers, micro_batch: both gradients, layers in descending order
  /// layers, micro_batch: the first half of a backward, the gradients that the stage before awaits
  kBackwardInput,
  kBackwardWeight,  ///< layers, micro_batch: the second half, the gradients of most weights
  /// layers, micro_batch: waits for the previous offload, then starts to copy the inputs saved for
  /// the recompute to the host
  kOffloadActivations,
  /// layers, micro_batch: starts to copy those inputs back; the recompute waits for them
  kFetchActivations,
  kSendActivation,     ///< value, micro_batch, peer
  kReceiveActivation,  ///< value, micro_batch, peer
  kSendGradient,       ///< value, consumer, micro_batch, peer
  kReceiveGradient,    ///< value, consumer, micro_batch, peer
  kSendTiedGradient,   ///< tie, consumer (the using layer), peer (the owner's rank)
  kReceiveTiedGradient,
  /// tie: on the owner's rank, adds the gradients of all uses to the owner's gradient
  kAddTiedGradients,
  /// layers: starts to bring their weights to the device, from other replicas' shards or from the
  /// host; an action that reads the weights waits for them
  kPrefetchWeights,
  kReleaseWeights,  ///< layers: frees the device memory of those weights
  /// layers: waits for the previous offload, then starts to copy their complete gradients to the
  /// host
  kOffloadGradients,
  /// layers, micro_batch (-1: the whole mini-batch): starts to sum the gradients of the replicas
  kReduceGradients,
  /// layers, micro_batch: waits until this rank's part of that sum is complete
  kAwaitGradients,
  kReduceNormAndLoss,  ///< collective: the global gradient norm and the step's loss, on every rank
  /// layers: runs the optimizer and starts to exchange the new weights. On the host it only starts
  /// the optimizer; an action that reads the results waits
  kUpdate,
  kGatherWeights,  ///< layers: waits for the weights that other replicas have updated
  /// layers: starts to read embeddings, as many steps ahead as their staleness allows
  kPrefetchRows,
  kFetchRows,         ///< layers: waits for the embeddings of this step
  kSendRowGradients,  ///< layers: starts to send this rank's gradients of embeddings
  kSendTiedWeight,    ///< tie, consumer (the using layer), peer (the using rank)
  kReceiveTiedWeight,
};
inline constexpr int kNumOps = static_cast<int>(Op::kReceiveTiedWeight) + 1;

struct Action {
  Op op;
  int stage = -1;        ///< global (virtual) stage that the action belongs to
  int micro_batch = -1;  ///< -1: concerns the whole mini-batch
  LayerRange layers{};   ///< empty in actions that concern no layer
  int value = -1;     ///< transfers: index into Dataflow::values; ties: index into Dataflow::ties
  int consumer = -1;  ///< gradients: the layer that computed this gradient of the value
  int peer = -1;      ///< transfers: the other rank
  friend bool operator==(const Action&, const Action&) = default;
};

/// What one rank does in one step, in order.
using Program = std::vector<Action>;

bool is_compute(Op op);
bool makes_input_gradients(Op op);  ///< a whole backward or its first half
bool ends_weight_gradients(Op op);  ///< a whole backward or its second half
bool is_send(Op op);
bool is_receive(Op op);
Op receive_of(Op send);      ///< kSendActivation -> kReceiveActivation, ...
const char* kind_of(Op op);  ///< short static name for traces and grids: "F", "R", "B", "SF", ...
/// "forward", "activation" (for its send and its receive), "gradient norm", ...
const char* words_for(Op op);
std::string to_string(const Action& action);  ///< "F s2 m4 [6,9)", "RB v7<-8 m4 from rank 3"

/// The order in which stages run forward and backward.
enum class ScheduleKind : std::uint8_t {
  kGpipe,
  kVertical,
  k1f1b,
  kInterleaved,
  kZbH1,
  kZbH2,
  kZbv,
  kVHalf,
  kVMin,
  kDualPipeV,
  kZb,       ///< found by a search (zero_bubble_search.h)
  kFile,     ///< read from a file (order_csv.h)
  kForward,  ///< evaluation and generation
};
const char* name_of(ScheduleKind kind);  ///< "gpipe", "vertical", "1f1b", ...

/// The programs of all ranks, and the kind and counts they were built for.
struct Schedule {
  ScheduleKind kind = ScheduleKind::k1f1b;
  int num_micro_batches = 0;
  std::vector<int> rank_of_stage;  ///< size = number of virtual stages
  std::vector<Program> programs;   ///< size = number of ranks
  int num_ranks() const { return static_cast<int>(programs.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
};

}  // namespace strata
