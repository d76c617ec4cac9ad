#include <optional>
#include <utility>

#include "strata/schedule/passes.h"

namespace strata::schedule {
namespace {

class Reducer {
 public:
  Reducer(const Wiring& wiring, const Sharing& sharing, int micro_batches)
      : sharing_(sharing), last_(micro_batches - 1), owns_tie_(wiring.num_layers) {
    for (const Tie& tie : wiring.ties) owns_tie_[tie.owner] = 1;
  }

  Program operator()(const Program& program) {
    for (const Action& action : program) {
      if (action.op == Op::kBackward) {
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
    return sharing_.is_reduced(layer) && !owns_tie_[layer] &&
           (sharing_.is_each(layer) || micro_batch == last_);
  }

  // Cuts the action below each layer that is reduced behind it.
  void backward(Action action) {
    const int begin = action.layers.begin, micro_batch = action.micro_batch;
    for (int end = action.layers.end; end > begin;) {
      int layer = end - 1;
      while (layer > begin && !reduces(layer, micro_batch)) --layer;
      action.layers = {layer, end};
      // A layer's next gradient may not be made while its last one is under way.
      if (under_way_ && under_way_->layers.begin >= layer && under_way_->layers.begin < end)
        await();
      full_.push_back(action);
      if (reduces(layer, micro_batch)) start(layer, micro_batch);
      end = layer;
    }
  }

  void start(int layer, int micro_batch) {
    const bool each = sharing_.is_each(layer);
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

  const Sharing& sharing_;
  int last_;
  std::vector<char> owns_tie_;  // per layer: its reduction waits for the others' gradients
  Program full_;
  std::optional<Action> under_way_;
};

}  // namespace

Schedule with_reductions(Schedule schedule, const Wiring& wiring, const Sharing& sharing) {
  if (sharing.reduced.empty()) return schedule;
  for (Program& program : schedule.programs)
    program = Reducer(wiring, sharing, schedule.num_micro_batches)(program);
  return schedule;
}

}  // namespace strata::schedule
