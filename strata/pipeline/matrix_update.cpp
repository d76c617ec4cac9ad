// Updates of layers with hidden matrices by Muon. Part of StageMachine.
//
// A matrix is orthogonalised whole. Each rank moves the velocities of its shard and writes the
// directions; ranks that share the layer gather them, orthogonalise the matrices of which their
// shard has a part, and move that part. All other weights are updated as ever.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strata/comm/collectives.h"
#include "strata/nn/graph/layout.h"
#include "strata/optim/muon.h"
#include "strata/pipeline/stage_machine.h"

namespace strata {
namespace {

// The part of a hidden matrix that a range of the layer's elements covers.
struct MatrixPart {
  std::size_t weight;
  FlatRange elements;  // of the layer
};

// In ascending order.
std::vector<MatrixPart> matrix_parts(const LayerLayout& layout, FlatRange range) {
  std::vector<MatrixPart> parts;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (!layout.specs[i].hidden_matrix || place.borrowed) continue;
    const FlatRange part{std::max(range.begin, place.offset),
                         std::min(range.end, place.offset + place.numel)};
    if (part.begin < part.end) parts.push_back({i, part});
  }
  std::ranges::sort(parts, {}, [](const MatrixPart& part) { return part.elements.begin; });
  return parts;
}

FlatRange shifted(FlatRange range, std::int64_t by) { return {range.begin + by, range.end + by}; }

// The direction of a whole matrix. `slices`: the directions of the layer, one row for each rank
// that divides it.
at::Tensor whole_direction(const LayerLayout& layout, std::size_t weight,
                           const at::Tensor& slices) {
  const WeightSpec& spec = layout.specs[weight];
  const WeightPlacement& place = layout.placements[weight];
  const auto ranks = static_cast<int>(slices.size(0));
  if (ranks == 1 || spec.split.axis < 0)
    return slices[0].narrow(0, place.offset, place.numel).view({spec.shape[0], -1});
  const at::Tensor whole = at::empty(spec.shape, slices.options()).view(-1);
  for (int rank = 0; rank < ranks; ++rank)
    for (const Run& run : slice_runs(spec, rank, ranks))
      whole.narrow(0, run.global, run.numel)
          .copy_(slices[rank].narrow(0, place.offset + run.local, run.numel));
  return whole.view({spec.shape[0], -1});
}

// The slice of an orthogonalised matrix of one of the ranks that divide it, flat, with zeros as
// padding.
at::Tensor slice_of(const LayerLayout& layout, std::size_t weight, const at::Tensor& whole,
                    const Group& tensor) {
  const WeightSpec& spec = layout.specs[weight];
  const at::Tensor flat = whole.reshape({-1});
  if (tensor.size() == 1 || spec.split.axis < 0) return flat;
  const at::Tensor slice = at::zeros({layout.placements[weight].numel}, flat.options());
  for (const Run& run : slice_runs(spec, tensor.rank(), tensor.size()))
    slice.narrow(0, run.local, run.numel).copy_(flat.narrow(0, run.global, run.numel));
  return slice;
}

}  // namespace

bool StageMachine::has_hidden_matrices(int layer) const {
  return optimizer_->orthogonalises() &&
         std::ranges::any_of(store_.layout(layer).specs, &WeightSpec::hidden_matrix);
}

// Collective over the ranks that share the layer. `range`: of the rank's shard.
void StageMachine::update_with_matrices(const Pin& pin, const UpdateRange& range,
                                        const BegunUpdate& begun) {
  const StepScalars scalars = step_end_.read();
  const LayerLayout& layout = pin.layout();
  const FlatRange shard = pin.placement().shard;
  const std::vector<MatrixPart> parts =
      matrix_parts(layout, {shard.begin, shard.begin + range.weights.numel()});
  std::int64_t rest = 0;  // in the shard
  const auto update_rest = [&](std::int64_t end) {
    if (rest < end) optimizer_->update(narrowed(range, {rest, end}), begun);
  };
  for (const MatrixPart& part : parts) {
    update_rest(part.elements.begin - shard.begin);
    rest = part.elements.end - shard.begin;
  }
  update_rest(range.weights.numel());

  const OptimizerOptions& options = optimizer_->options();
  const MuonStep step{.learning_rate = scalars.learning_rate,
                      .gradient_factor = scalars.factor,
                      .momentum = options.momentum,
                      .weight_decay = options.weight_decay};
  at::Tensor directions = at::zeros({shard.size()}, range.gradients.options().dtype(at::kFloat));
  for (const MatrixPart& part : parts) {
    const FlatRange own = shifted(part.elements, -shard.begin);
    const UpdateRange of = narrowed(range, own);
    move_velocity(of.slots[0], of.gradients, step, directions.narrow(0, own.begin, own.size()));
  }
  if (groups_.shard.size() > 1)
    directions = AllGather::start(groups_.shard, directions, cuts_of(pin.layer()).shards).finish();
  directions = directions.unsqueeze(0);
  if (groups_[Axis::kTensor].size() > 1)
    directions = all_gather(groups_[Axis::kTensor], directions, 0);
  for (const MatrixPart& part : parts) {
    const std::int64_t offset = layout.placements[part.weight].offset;
    const at::Tensor orthogonal = slice_of(
        layout, part.weight, orthogonalised(whole_direction(layout, part.weight, directions)),
        groups_[Axis::kTensor]);
    const FlatRange own = shifted(part.elements, -offset);
    move_matrix(narrowed(range, shifted(part.elements, -shard.begin)),
                orthogonal.narrow(0, own.begin, own.size()), layout.specs[part.weight].shape, step);
  }
}

}  // namespace strata
