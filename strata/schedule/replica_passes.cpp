// Adds the reductions of gradients over the replicas of a stage. A reduction starts right after the
// backward that completes the gradient, so that it overlaps with the following backwards. Where
// layers are reduced after every micro-batch, a reduction starts only after the previous one is
// complete, so that at most one whole gradient is waiting.
#include <algorithm>
#include <optional>
#include <utility>

#include "strata/schedule/passes.h"

namespace strata {

namespace {

class Reducer {
 public:
  Reducer(const Dataflow& dataflow, const ShardLayout& shards, int micro_batches)
      : shards_(shards), last_(micro_batches - 1), owns_tie_(dataflow.num_layers) {
    for (const Tie& tie : dataflow.ties) owns_tie_[tie.owner] = true;
  }

  Program operator()(const Program& program) {
    for (const Action& action : program) {
      if (ends_weight_gradients(action.op)) {
        backward(action);
      } else {
        full_.push_back(action);
      }
    }
    await();
    return std::move(full_);
  }

 private:
  bool reduces(int layer, int micro_batch) const {
    return shards_[layer].reduced && !owns_tie_[layer] &&
           (shards_[layer].reduced_each || micro_batch == last_);
  }

  // Splits a backward, or its second half, below each layer that is reduced right after it.
  void backward(Action action) {
    const int begin = action.layers.begin, micro_batch = action.micro_batch;
    for (int end = action.layers.end; end > begin;) {
      int layer = end - 1;
      while (layer > begin && !reduces(layer, micro_batch)) --layer;
      action.layers = {layer, end};
      // The next gradient of a layer may not be computed while its previous one is being reduced.
      if (under_way_ && under_way_->layers.begin >= layer && under_way_->layers.begin < end)
        await();
      full_.push_back(action);
      if (reduces(layer, micro_batch)) start(layer, micro_batch);
      end = layer;
    }
  }

  void start(int layer, int micro_batch) {
    const bool each = shards_[layer].reduced_each;
    if (each) await();
    const Action reduce{.op = Op::kReduceGradients,
                        .micro_batch = each ? micro_batch : -1,
                        .layers = {layer, layer + 1}};
    full_.push_back(reduce);
    if (each) under_way_ = reduce;
  }

  void await() {
    if (!under_way_) return;
    under_way_->op = Op::kAwaitGradients;
    full_.push_back(*under_way_);
    under_way_.reset();
  }

  const ShardLayout& shards_;
  int last_;
  std::vector<bool> owns_tie_;  // per layer: its reduction waits for the gradients of its tie
  Program full_;
  std::optional<Action> under_way_;
};

}  // namespace

Schedule with_reductions(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards) {
  if (shards.layers.empty()) return schedule;
  for (Program& program : schedule.programs)
    program = Reducer(dataflow, shards, schedule.num_micro_batches)(program);
  return schedule;
}

}  // namespace strata
