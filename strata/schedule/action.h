/// Names everything a rank can do in a training step.
///
/// A step is data: one Program a rank, an ordered list of Actions. Builders emit the compute
/// actions of whole stages (forward, backward); passes split them at layers and add recompute,
/// transfers, ties and the update. Anything that can perform an Action can run a Program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

enum class Op : std::uint8_t {
  kForward,    ///< layers, micro_batch
  kRecompute,  ///< layers, micro_batch: forward again, this time keeping what backward needs
  kBackward,   ///< layers, micro_batch: both gradients, layers in descending order
  kOffloadActivations,  ///< layers, micro_batch: starts to take the inputs that they keep for their
                        ///< recompute to the host; waits for the offload before
  kFetchActivations,    ///< layers, micro_batch: starts to bring them back; the recompute waits
  kSendActivation,      ///< value, micro_batch, peer
  kReceiveActivation,   ///< value, micro_batch, peer
  kSendGradient,        ///< value, consumer, micro_batch, peer
  kReceiveGradient,     ///< value, consumer, micro_batch, peer
  kSendTiedGradient,    ///< tie, consumer (the using layer), peer (the owner's rank)
  kReceiveTiedGradient,
  kAddTiedGradients,  ///< tie: adds the uses' gradients to the owner's, on the owner's rank
  kPrefetchWeights,  ///< layers: starts to bring their weights to the device, from the replicas that
  ///< hold their shards or from the host; who reads them waits for what is missing
  kReleaseWeights,    ///< layers: lets those weights go
  kOffloadGradients,  ///< layers: starts to take their complete gradients to the host; waits for the
                      ///< offload before
  kReduceGradients,   ///< layers, micro_batch (-1: of the whole mini-batch): starts to add the
                      ///< replicas' gradients
  kAwaitGradients,    ///< layers, micro_batch: this rank's part of that sum is complete
  kReduceNormAndLoss,  ///< collective: the global gradient norm and the step's loss, on every rank
  kUpdate,         ///< layers: optimizer step, and the start of their exchange; on the host it is
                   ///< only started, and who reads what it writes waits
  kGatherWeights,  ///< layers: the weights that each replica has updated are here
  kPrefetchRows,   ///< layers: starts to read rows of embeddings, for as many steps ahead as their
                   ///< staleness allows
  kFetchRows,      ///< layers: the rows of this step are here
  kSendRowGradients,  ///< layers: starts this rank's part of the rows' update
  kSendTiedWeight,    ///< tie, consumer (the using layer), peer (the using rank)
  kReceiveTiedWeight,
};
inline constexpr int kNumOps = static_cast<int>(Op::kReceiveTiedWeight) + 1;

/// Half-open range of global layer indices; empty in actions that concern no layer.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

struct Action {
  Op op;
  int stage = -1;        ///< global (virtual) stage that the action belongs to
  int micro_batch = -1;  ///< -1: concerns the whole mini-batch
  LayerRange layers{};   ///< compute actions only
  int value = -1;     ///< transfers: index into Dataflow::values; ties: index into Dataflow::ties
  int consumer = -1;  ///< gradients: the layer whose gradient of the value this is
  int peer = -1;      ///< transfers: the other rank
  friend bool operator==(const Action&, const Action&) = default;
};

/// What one rank does in one step, in order.
using Program = std::vector<Action>;

bool is_compute(Op op);
bool is_send(Op op);
bool is_receive(Op op);
Op receive_of(Op send);        ///< kSendActivation -> kReceiveActivation, ...
const char* kind_of(Op op);    ///< short static name for traces and grids: "F", "R", "B", "SF", ...
const char* words_for(Op op);  ///< "forward", "activation" (of its way), "gradient norm", ...
std::string to_string(const Action& action);  ///< "F s2 m4 [6,9)", "RB v7<-8 m4 from rank 3"

/// In which order stages run forward and backward.
enum class ScheduleKind : std::uint8_t { kGpipe, kVertical, k1f1b, kInterleaved, kForward };
inline constexpr ScheduleKind kScheduleKinds[] = {ScheduleKind::kGpipe, ScheduleKind::kVertical,
                                                  ScheduleKind::k1f1b, ScheduleKind::kInterleaved,
                                                  ScheduleKind::kForward};
const char* name_of(ScheduleKind kind);  ///< "gpipe", "vertical", "1f1b", ...

/// The programs of all ranks and what they were built for.
struct Schedule {
  ScheduleKind kind = ScheduleKind::k1f1b;
  int num_micro_batches = 0;
  std::vector<int> rank_of_stage;  ///< size = number of virtual stages
  std::vector<Program> programs;   ///< size = number of ranks
  int num_ranks() const { return static_cast<int>(programs.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
};

}  // namespace strata
