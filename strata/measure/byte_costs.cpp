// Bytes are those of buffers as stages hold them: gradients in fp32 for any type of weights, a
// master copy of 16-bit weights, a replica of a tied weight whose owner is on another rank.
#include "strata/measure/byte_costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "strata/optim/master_weights.h"
#include "strata/optim/muon.h"
#include "strata/plan/search/gpu_costs.h"

namespace strata {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kScalarBytes = 64;  // per rank: the loss, its gradient and its scale

std::int64_t borrowed_numel(const LayerLayout& layout) {
  return layout.total_numel - layout.own_numel;
}

std::int64_t matrix_numel(const LayerLayout& layout) {
  std::int64_t numel = 0;
  for (const FlatRange& matrix : matrices_of(layout)) numel += matrix.size();
  return numel;
}

// The gradients of a micro-batch's inputs that the layer computes.
std::int64_t input_gradient_bytes(const Sequential& model, int layer,
                                  const std::vector<TensorSpec>& batch_inputs) {
  std::int64_t bytes = 0;
  for (const InputRef& input : model.inputs(layer))
    if (input.value < 0 && model.wants_gradient(input.batch_input))
      bytes += batch_inputs[input.batch_input].bytes();
  return bytes;
}

// Queries each distinct layer once: the blocks of a model are equal, and a measurement takes time.
class LayerBytesTable {
 public:
  const LayerBytes& of(const Layer& layer, const std::vector<TensorSpec>& inputs,
                       Recompute recompute) {
    Entry& entry = entries_[&layer];
    if (entry.inputs != inputs) entry = {inputs, layer.bytes(inputs, recompute)};
    return entry.bytes;
  }

 private:
  struct Entry {
    std::vector<TensorSpec> inputs;
    LayerBytes bytes;
  };
  std::map<const Layer*, Entry> entries_;
};

// The part of a need that remains at scale 0, given `full` at scale 1 and `shorter` at `scale`.
std::int64_t fixed_part(std::int64_t full, std::int64_t shorter, double scale) {
  const double fixed =
      (static_cast<double>(shorter) - scale * static_cast<double>(full)) / (1 - scale);
  return std::clamp<std::int64_t>(std::llround(fixed), 0, full);
}

// What layers need while they run is not proportional to the samples, so that the shortest
// micro-batch is looked at, too.
void add_fixed_bytes(CostTable& costs, const Sequential& model, const CostRequest& request) {
  const auto& scales = costs.micro_batch_scale;
  const double scale = scales.empty() ? 1 : *std::min_element(scales.begin(), scales.end());
  if (scale >= 1) return;
  std::vector<TensorSpec> batch_inputs = request.batch_inputs;
  for (TensorSpec& input : batch_inputs)
    input.shape[0] = std::llround(scale * static_cast<double>(request.micro_batch));
  const std::vector<TensorSpec> values = model.value_specs(batch_inputs);
  LayerBytesTable table;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerBytes& bytes =
        table.of(model.layer(layer), model.input_specs(layer, batch_inputs, values),
                 level_of(model.layer(layer), request));
    LayerCost& cost = costs.layers[layer];
    cost.forward_fixed_bytes =
        fixed_part(cost.forward_transient_bytes, bytes.forward_transient, scale);
    cost.backward_fixed_bytes = fixed_part(
        cost.backward_transient_bytes,
        bytes.backward_transient + input_gradient_bytes(model, layer, batch_inputs), scale);
    cost.no_grad_fixed_bytes =
        fixed_part(cost.no_grad_transient_bytes, bytes.without_graph(), scale);
  }
}

// Whether the second half does the whole backward of the layer, because no input has a gradient.
bool has_no_input_gradient(const Sequential& model, int layer) {
  const std::vector<bool> differentiable = model.differentiable_inputs(layer);
  return std::ranges::none_of(differentiable, [](bool has) { return has; });
}

// Sets the costs of the halves of a divided backward. `pass`: seconds of a pass over the memory.
void add_halves(LayerCost& cost, const Sequential& model, int layer,
                const std::vector<TensorSpec>& inputs, const LayerBytes& bytes,
                const CostRequest& request, double pass) {
  if (has_no_input_gradient(model, layer)) {
    cost.kept_bytes = bytes.saved;
    for (const TensorSpec& output : model.layer(layer).outputs(inputs))
      cost.kept_bytes += output.bytes();
    cost.weight_transient_bytes = cost.backward_transient_bytes;
    cost.weight_seconds = cost.backward_seconds;
    return;
  }
  cost.kept_bytes = bytes.kept;
  cost.input_transient_bytes =
      bytes.first_half() + input_gradient_bytes(model, layer, request.batch_inputs);
  cost.weight_transient_bytes = bytes.second_half();
  if (bytes.kept == 0) return;
  // The products with weights, without others such as attention's.
  const double products = model.layer(layer).Layer::forward_flops(inputs) / model.split().ranks;
  cost.weight_seconds = std::min(products, cost.forward_flops) / request.flops_per_second +
                        kBackwardPasses / 2 * pass;
}

// Adds what backward does again at levels after kCheap, which saves `cheap_saved` bytes.
void add_repeated(LayerCost& cost, const Layer& layer, const std::vector<TensorSpec>& inputs,
                  Recompute level, std::int64_t cheap_saved, const CostRequest& request) {
  const RepeatedWork repeated = layer.repeated_work(inputs, level);
  cost.work.backward_kernels += repeated.kernels;
  cost.work.backward_sum_bytes += repeated.sum_bytes;
  cost.work.backward_context_bytes += repeated.context_bytes;
  cost.work.backward_context_messages += repeated.context_messages;
  cost.work.remade_bytes = cheap_saved - cost.saved_bytes;
  cost.work.attention.runs_again = level >= Recompute::kAttention;
  cost.backward_seconds += repeated.flops / request.flops_per_second;
  if (request.counts_passes)
    cost.backward_seconds += kForwardPasses * static_cast<double>(cost.work.remade_bytes) /
                             request.memory_bytes_per_second;
}

// Bytes between products that every pass reads or writes.
double passed_bytes(const Layer& layer, const std::vector<TensorSpec>& inputs,
                    std::int64_t kept_bytes) {
  auto bytes = static_cast<double>(kept_bytes);
  for (const TensorSpec& output : layer.outputs(inputs))
    bytes += static_cast<double>(output.bytes());
  return bytes;
}

// The logits of a loss after a product: as many as the product returns.
double logit_bytes(const Layer& layer, const std::vector<TensorSpec>& inputs, double flops) {
  if (!layer.is_loss() || inputs.empty() || inputs[0].shape.empty()) return 0;
  return flops / (2 * static_cast<double>(inputs[0].shape.back())) *
         static_cast<double>(c10::elementSize(inputs[0].dtype));
}

// What the update of a layer needs for its hidden matrices.
struct MatrixCost {
  std::int64_t bytes = 0, shared_bytes = 0;
  double flops = 0;
};

MatrixCost matrix_cost(const LayerLayout& layout, int tensor_ranks) {
  MatrixCost cost;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.specs[i].hidden_matrix || layout.placements[i].borrowed) continue;
    largest = std::max(largest, orthogonalisation_bytes(layout.specs[i].shape));
    cost.flops += orthogonalisation_flops(layout.specs[i].shape);
  }
  if (largest == 0) return {};
  // The directions of the layer: this rank's, and those of all that divide its weights.
  const std::int64_t directions = layout.own_numel * kFloatBytes;
  cost.bytes = largest + directions * (tensor_ranks > 1 ? 1 + tensor_ranks : 1);
  cost.shared_bytes = directions;
  return cost;
}

// What an outer step receives of a layer: parts of its weights and of the next layer's, and sums
// of parts (comm/all_reduce.cpp).
std::int64_t outer_bytes(const OuterCost& outer, std::int64_t numel) {
  return outer.every > 0 && outer.replicas > 1 ? 3 * numel * kFloatBytes : 0;
}

// What an update by trust ratios moves in addition to one by AdamW, for weights with decay: the
// first pass writes their directions, and the second reads directions and weights again.
std::int64_t second_pass_bytes(const LayerLayout& layout, const CostRequest& request) {
  return layout.decay_numel *
         (2 * kFloatBytes + static_cast<std::int64_t>(c10::elementSize(request.precision)) +
          master_bytes(request.precision));
}

}  // namespace

Recompute level_of(const Layer& layer, const CostRequest& request) {
  return std::min(request.recompute, layer.deepest_recompute());
}

// A layer's messages are at most 3 bits a weight: those that it sends, receives and returns.
// Three layers have messages at a time (pipeline/one_bit_update.cpp).
constexpr double kSignBytes = 3 * 3 / 8.0;

CostTable byte_costs(const Sequential& model, const CostRequest& request) {
  CostTable costs;
  LayerBytesTable table, kept, cheap;
  const auto weight_bytes = static_cast<std::int64_t>(c10::elementSize(request.precision));
  costs.weight_element_bytes = static_cast<int>(weight_bytes);
  const std::vector<TensorSpec> values = model.value_specs(request.batch_inputs);
  for (const TensorSpec& value : values) costs.values.push_back({.bytes = value.bytes()});
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerLayout& layout = model.layout(layer);
    const std::vector<TensorSpec> inputs = model.input_specs(layer, request.batch_inputs, values);
    const Recompute level = level_of(model.layer(layer), request);
    const LayerBytes& bytes = table.of(model.layer(layer), inputs, level);
    const double flops = model.layer(layer).forward_flops(inputs);
    const double forward = flops / request.flops_per_second;
    double pass = 0, logits = 0;  // seconds
    if (request.counts_passes) {
      const std::int64_t saved = kept.of(model.layer(layer), inputs, Recompute::kNone).saved;
      pass = passed_bytes(model.layer(layer), inputs, saved) / request.memory_bytes_per_second;
      logits = logit_bytes(model.layer(layer), inputs, flops) / request.memory_bytes_per_second;
    }
    const std::int64_t own = layout.own_numel;
    std::int64_t input_bytes = 0;
    for (const InputRef& input : model.inputs(layer))
      if (input.value >= 0) input_bytes += values[input.value].bytes();
    const std::int64_t input_gradients = input_gradient_bytes(model, layer, request.batch_inputs);
    const std::int64_t states =
        own * (kFloatBytes * request.optimizer_slots + master_bytes(request.precision));
    const std::int64_t outer = own * kFloatBytes * request.outer.states;
    // Gradients are read, states and weights read and written; fp16 ones only written.
    const int passes = request.precision == at::kHalf ? 1 : 2;
    const std::int64_t updated = own * kFloatBytes + 2 * states + passes * own * weight_bytes +
                                 (request.trust_ratios ? second_pass_bytes(layout, request) : 0);
    const MatrixCost matrices =
        request.orthogonalises ? matrix_cost(layout, model.split().ranks) : MatrixCost{};
    costs.layers.push_back(
        {.name = model.name(layer),
         .forward_seconds = forward + kForwardPasses * pass,
         .backward_seconds = 2 * forward + kBackwardPasses * (pass + logits),
         .update_seconds = static_cast<double>(updated) / request.memory_bytes_per_second +
                           matrices.flops / request.flops_per_second,
         .weight_bytes = own * weight_bytes,
         .matrix_bytes = matrix_numel(layout) * weight_bytes,
         .gradient_bytes = layout.total_numel * kFloatBytes,
         .state_bytes = states + outer,
         .update_bytes = matrices.bytes + outer_bytes(request.outer, own),
         .shared_update_bytes = matrices.shared_bytes,
         .sign_bytes = request.sends_signs
                           ? static_cast<std::int64_t>(kSignBytes * static_cast<double>(own))
                           : 0,
         .replica_bytes = borrowed_numel(layout) * weight_bytes,
         .input_bytes = input_bytes,
         .batch_gradient_bytes = input_gradients / request.micro_batch * request.samples,
         .saved_bytes = bytes.saved,
         .forward_transient_bytes = bytes.forward_transient,
         .backward_transient_bytes = bytes.backward_transient + input_gradients,
         .no_grad_transient_bytes = bytes.without_graph(),
         .recomputable = model.layer(layer).recomputable(),
         .runs_python = model.layer(layer).runs_python(),
         .forward_flops = flops,
         .work = model.layer(layer).work(inputs)});
    if (level > Recompute::kCheap)
      add_repeated(costs.layers.back(), model.layer(layer), inputs, level,
                   cheap.of(model.layer(layer), inputs, Recompute::kCheap).saved, request);
    add_halves(costs.layers.back(), model, layer, inputs, bytes, request, pass);
  }
  for (std::int64_t first = 0; first < request.samples; first += request.micro_batch) {
    const std::int64_t samples = std::min(request.micro_batch, request.samples - first);
    costs.micro_batch_scale.push_back(static_cast<double>(samples) /
                                      static_cast<double>(request.micro_batch));
  }
  add_fixed_bytes(costs, model, request);
  std::int64_t micro_batch_bytes = 0;
  for (const TensorSpec& input : request.batch_inputs) micro_batch_bytes += input.bytes();
  costs.batch_bytes =
      micro_batch_bytes / request.micro_batch * std::max(request.samples, request.loaded_samples) +
      kScalarBytes;
  return costs;
}

}  // namespace strata
