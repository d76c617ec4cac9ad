// Passes for what the replicas of a stage exchange: prefetched weights and reduced gradients.
//
// Both overlap with compute. A fetch is started one compute action ahead of its use, so that two
// layers' weights are held at once and no more. A reduction is started right behind the backward
// that completes the gradient; of layers that are reduced after every micro-batch, the next start
// awaits the last one, so that one whole gradient waits at a time.
#include <algorithm>
#include <optional>
#include <utility>

#include "strata/schedule/passes.h"

namespace strata {

namespace {

constexpr std::size_t kPrefetch = 1;  // compute actions ahead

// Runs of layers whose weights stay become one action, layers of sharded weights one each.
void append_split(Program& program, Action action, const ShardLayout& shards) {
  std::vector<LayerRange> parts;
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    const bool joins =
        !parts.empty() && !shards[layer].weights && !shards[parts.back().begin].weights;
    if (joins) {
      ++parts.back().end;
    } else {
      parts.push_back({layer, layer + 1});
    }
  }
  if (action.op == Op::kBackward) std::reverse(parts.begin(), parts.end());
  for (const LayerRange& part : parts) {
    action.layers = part;
    program.push_back(action);
  }
}

// The layers of sharded weights that actions [begin, end) use, each once, in the order of their use.
std::vector<int> window(const Program& program, std::size_t begin, std::size_t end,
                        const ShardLayout& shards) {
  std::vector<int> layers;
  for (std::size_t i = begin; i < std::min(end, program.size()); ++i) {
    const int layer = program[i].layers.begin;
    if (shards[layer].weights && std::find(layers.begin(), layers.end(), layer) == layers.end())
      layers.push_back(layer);
  }
  return layers;
}

Program with_window(const Program& program, const ShardLayout& shards) {
  Program full;
  std::vector<int> held;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const std::vector<int> wanted = window(program, i, i + 1 + kPrefetch, shards);
    for (const int layer : wanted) {
      if (std::find(held.begin(), held.end(), layer) != held.end()) continue;
      full.push_back({.op = Op::kPrefetchWeights, .layers = {layer, layer + 1}});
      held.push_back(layer);
    }
    full.push_back(program[i]);
    const std::vector<int> next = window(program, i + 1, i + 2 + kPrefetch, shards);
    std::erase_if(held, [&](int layer) {
      if (std::find(next.begin(), next.end(), layer) != next.end()) return false;
      full.push_back({.op = Op::kReleaseWeights, .layers = {layer, layer + 1}});
      return true;
    });
  }
  return full;
}

}  // namespace

Schedule with_prefetches(Schedule schedule, const ShardLayout& shards) {
  if (std::ranges::none_of(shards.layers, &LayerShards::weights)) return schedule;
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) append_split(split, action, shards);
    program = with_window(split, shards);
  }
  return schedule;
}

namespace {

class Reducer {
 public:
  Reducer(const Dataflow& dataflow, const ShardLayout& shards, int micro_batches)
      : shards_(shards), last_(micro_batches - 1), owns_tie_(dataflow.num_layers) {
    for (const Tie& tie : dataflow.ties) owns_tie_[tie.owner] = true;
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
    return shards_[layer].reduced && !owns_tie_[layer] &&
           (shards_[layer].reduced_each || micro_batch == last_);
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
  std::vector<bool> owns_tie_;  // per layer: its reduction waits for the others' gradients
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
