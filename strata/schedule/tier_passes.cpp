// Passes for data that is not on the device when an action needs it: weights that replicas shard or
// that live on the host, offloaded inputs of recomputed layers, and gradients that are offloaded
// once complete.
//
// The program is known in advance, so evictions are optimal: the layer with the farthest next use
// goes first (Belady). A step uses layers 0..L-1 and then L-1..0, so this keeps the last layers
// between forward and backward and yields the working window. One slot of the window is reserved
// for the layer being fetched. This costs a few more fetches and lets every fetch overlap with
// compute.
#include <algorithm>
#include <limits>
#include <utility>

#include "strata/schedule/passes.h"

namespace strata {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

bool is_away(int layer, const ShardLayout& shards, const TierLayout& tiers) {
  return shards[layer].weights || tiers[layer].fetches_weights();
}

// Adjacent layers that stay together become one action; layers of `apart` get one action each.
void append_split(Program& program, Action action, const LayerSet& apart) {
  std::vector<LayerRange> parts;
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    const bool joins = !parts.empty() && !apart.has(layer) && !apart.has(parts.back().begin);
    if (joins) {
      ++parts.back().end;
    } else {
      parts.push_back({layer, layer + 1});
    }
  }
  if (makes_input_gradients(action.op) || action.op == Op::kBackwardWeight)
    std::reverse(parts.begin(), parts.end());
  for (const LayerRange& part : parts) {
    action.layers = part;
    program.push_back(action);
  }
}

// Sorts by `key`; equal actions keep their order.
template <typename Key>
void sort_actions(Program::iterator begin, Program::iterator end, Key key) {
  std::vector<std::pair<int, std::ptrdiff_t>> order;
  for (auto action = begin; action != end; ++action)
    order.emplace_back(key(*action), action - begin);
  std::sort(order.begin(), order.end());
  const Program before(begin, end);
  for (const auto& [unused, position] : order) *begin++ = before[position];
}

// Runs all micro-batches of a layer before the next layer. A recompute stays before its backward.
void run_layer_by_layer(Program& program) {
  const auto backwards = std::find_if(program.begin(), program.end(),
                                      [](const Action& a) { return a.op != Op::kForward; });
  sort_actions(program.begin(), backwards, [](const Action& a) { return a.layers.begin; });
  sort_actions(backwards, program.end(), [](const Action& a) { return -a.layers.begin; });
}

// Adds fetches and releases to one rank's program.
class WeightWindow {
 public:
  // `uses`: per action, the layers that it needs whose weights are not resident.
  WeightWindow(const Program& program, std::vector<std::vector<int>> uses, int num_layers,
               std::size_t window)
      : program_(program), uses_(std::move(uses)), window_(window), positions_(num_layers) {
    for (std::size_t i = 0; i < uses_.size(); ++i)
      for (const int layer : uses_[i]) positions_[layer].push_back(i);
    distinct_ = static_cast<std::size_t>(std::ranges::count_if(
        positions_, [](const std::vector<std::size_t>& uses) { return !uses.empty(); }));
    most_kept_ = distinct_ <= window || window == 1 ? window : window - 1;
  }

  Program operator()() {
    for (std::size_t i = 0; i < program_.size(); ++i) {
      for (const int layer : uses_[i]) need(layer, i);
      look_ahead(i);
      full_.push_back(program_[i]);
      for (std::vector<int>* layers : {&kept_, &evicted_}) {
        const std::vector<int> now = *layers;
        for (const int layer : now)
          if (next_use(layer, i + 1) == kNever) release(*layers, layer);
      }
    }
    return std::move(full_);
  }

 private:
  static bool has(const std::vector<int>& layers, int layer) {
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }

  std::size_t next_use(int layer, std::size_t from) const {
    const std::vector<std::size_t>& positions = positions_[layer];
    const auto next = std::lower_bound(positions.begin(), positions.end(), from);
    return next == positions.end() ? kNever : *next;
  }

  // Fetches a layer that the current action needs, even beyond the window.
  void need(int layer, std::size_t now) {
    if (has(kept_, layer)) return;
    while (kept_.size() >= most_kept_) {
      const int last =
          *std::ranges::max_element(kept_, {}, [&](int held) { return next_use(held, now); });
      if (next_use(last, now) == now) break;
      std::erase(kept_, last);
      evicted_.push_back(last);
    }
    if (!has(ahead_, layer)) bring(layer);
    std::erase(ahead_, layer);
    kept_.push_back(layer);
  }

  // Fetches the layers that are needed next, as far as the window has free slots.
  void look_ahead(std::size_t now) {
    for (std::size_t use = now + 1; use < program_.size(); ++use) {
      if (kept_.size() + ahead_.size() == distinct_) return;  // all layers are fetched
      for (const int layer : uses_[use]) {
        if (has(kept_, layer) || has(ahead_, layer)) continue;
        if (kept_.size() + ahead_.size() >= window_) return;
        bring(layer);
        ahead_.push_back(layer);
      }
    }
  }

  // An evicted layer is released only when its slot is needed.
  void bring(int layer) {
    if (has(evicted_, layer)) {
      std::erase(evicted_, layer);
      return;
    }
    while (!evicted_.empty() && kept_.size() + ahead_.size() + evicted_.size() >= window_)
      release(evicted_, evicted_.front());
    full_.push_back({.op = Op::kPrefetchWeights, .layers = {layer, layer + 1}});
  }

  void release(std::vector<int>& from, int layer) {
    full_.push_back({.op = Op::kReleaseWeights, .layers = {layer, layer + 1}});
    std::erase(from, layer);
  }

  const Program& program_;
  std::vector<std::vector<int>> uses_;
  std::size_t window_, most_kept_, distinct_ = 0;
  // per layer: the positions of its uses, ascending
  std::vector<std::vector<std::size_t>> positions_;
  // All layers that are fetched or being fetched.
  std::vector<int> kept_;     // needed now, or with the nearest next use
  std::vector<int> ahead_;    // fetched for their next use
  std::vector<int> evicted_;  // evicted but not yet released
  Program full_;
};

// Per layer: the layer itself, if its weights are not resident, and the owners of the tied weights
// that it uses on its rank.
std::vector<std::vector<int>> needed_layers(const Dataflow& dataflow, const Partition& partition,
                                            const std::vector<int>& rank_of_stage,
                                            const LayerSet& away) {
  const LayerPlacement placement(dataflow, partition, rank_of_stage);
  std::vector<std::vector<int>> needed(dataflow.num_layers);
  for (const int layer : away.layers()) needed[layer].push_back(layer);
  for (const Tie& tie : dataflow.ties) {
    if (!away.has(tie.owner)) continue;
    for (const int user : tie.users)
      if (placement.rank[user] == placement.rank[tie.owner]) needed[user].push_back(tie.owner);
  }
  return needed;
}

}  // namespace

Schedule with_prefetches(Schedule schedule, const Dataflow& dataflow, const Partition& partition,
                         const ShardLayout& shards, const TierLayout& tiers) {
  LayerSet away, apart;
  for (int layer = 0; layer < dataflow.num_layers; ++layer) {
    if (is_away(layer, shards, tiers)) away.add(layer);
    if (away.has(layer) || tiers[layer].offloads_gradients() || tiers[layer].offloads_activations())
      apart.add(layer);
  }
  if (apart.empty()) return schedule;
  const std::vector<std::vector<int>> needed =
      needed_layers(dataflow, partition, schedule.rank_of_stage, away);
  for (int layer = 0; layer < dataflow.num_layers; ++layer)
    if (!needed[layer].empty()) apart.add(layer);
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) append_split(split, action, apart);
    if (schedule.kind == ScheduleKind::kVertical) run_layer_by_layer(split);
    std::vector<std::vector<int>> uses;
    for (const Action& action : split) uses.push_back(needed[action.layers.begin]);
    program = WeightWindow(split, std::move(uses), dataflow.num_layers, tiers.window)();
  }
  return schedule;
}

Schedule with_activation_offloads(Schedule schedule, const TierLayout& tiers) {
  if (std::ranges::none_of(tiers.layers, &LayerTiers::offloads_activations)) return schedule;
  constexpr std::size_t kNone = -1;
  const auto layers = tiers.layers.size();
  for (Program& program : schedule.programs) {
    std::vector<std::size_t> forwards(layers * schedule.num_micro_batches);  // compute actions
    std::vector<std::size_t> computes;                                       // positions
    // Per position: the recompute whose inputs are offloaded after it, or fetched before it.
    std::vector<std::size_t> after(program.size(), kNone), ahead(program.size(), kNone);
    for (std::size_t i = 0; i < program.size(); ++i) {
      const Action& action = program[i];
      if (!is_compute(action.op)) continue;
      computes.push_back(i);
      if (!tiers[action.layers.begin].offloads_activations()) continue;
      std::size_t& forward = forwards[action.micro_batch * layers + action.layers.begin];
      const std::size_t here = computes.size() - 1;
      if (action.op == Op::kForward) forward = here;
      if (action.op != Op::kRecompute || here == forward + 1) continue;
      after[computes[forward]] = i;
      ahead[computes[here - 1]] = i;
    }
    Program full;
    const auto add = [&](Op op, std::size_t recompute) {
      if (recompute == kNone) return;
      full.push_back(program[recompute]);
      full.back().op = op;
    };
    for (std::size_t i = 0; i < program.size(); ++i) {
      add(Op::kFetchActivations, ahead[i]);
      full.push_back(program[i]);
      add(Op::kOffloadActivations, after[i]);
    }
    program = std::move(full);
  }
  return schedule;
}

Schedule with_offloads(Schedule schedule, const Dataflow& dataflow, const ShardLayout& shards,
                       const TierLayout& tiers) {
  const LayerSet tied = tied_layers(dataflow);
  const int last = schedule.num_micro_batches - 1;
  for (Program& program : schedule.programs) {
    Program full;
    for (const Action& action : program) {
      full.push_back(action);
      const int layer = action.layers.begin;
      if (!ends_weight_gradients(action.op) || action.micro_batch != last || tied.has(layer))
        continue;
      if (!tiers[layer].offloads_gradients() || shards[layer].reduced) continue;
      full.push_back({.op = Op::kOffloadGradients, .layers = {layer, layer + 1}});
      if (is_updated_at_once(tiers, shards[layer], layer, tied))
        full.push_back({.op = Op::kUpdate, .layers = {layer, layer + 1}});
    }
    program = std::move(full);
  }
  return schedule;
}

}  // namespace strata
