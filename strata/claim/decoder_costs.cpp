#include "strata/claim/decoder_costs.h"

#include <algorithm>
#include <string>

#include "strata/plan/search/gpu_costs.h"

namespace strata {
namespace {

constexpr double kFloatBytes = 4;
// The head computes the logits of this many rows at a time.
constexpr double kLogitRows = 1024, kGpuLogitRows = 8192;

// Of a block, as strata/models/decoder_layer.cpp counts them.
constexpr int kBlockForwardKernels = 10, kBlockBackwardKernels = 36;
constexpr int kRepeatedKernels = 4;  // two norms and two products

std::int64_t whole_bytes(double bytes) { return static_cast<std::int64_t>(bytes); }

// The parts of a cost that every layer computes in the same way.
class DecoderCosts {
 public:
  DecoderCosts(const DecoderShape& shape, const DecoderRun& run, const ParameterBytes& bytes,
               const MachineProfile& machine)
      : shape_(shape),
        run_(run),
        bytes_(bytes),
        ranks_(run.split.tensor_ranks),
        rows_(static_cast<double>(shape.tokens * run.split.samples)),
        rate_(run.split.element_bytes == 2 && machine.device.bf16 > 0 ? machine.device.bf16
                                                                      : machine.device.fp32),
        bandwidth_(static_cast<double>(machine.device.bandwidth.count)),
        on_gpu_(machine.device.kind == MachineKind::kCuda) {}

  // The residual stream: of all ranks, and on one rank between regions that ranks divide.
  double stream() const {
    return rows_ * static_cast<double>(shape_.width) * run_.split.element_bytes;
  }
  double own_stream() const { return run_.split.sequence_parallel ? stream() / ranks_ : stream(); }

  LayerCost embedding() const {
    const double rows = static_cast<double>(shape_.vocabulary) / ranks_ +
                        (shape_.learned_positions ? static_cast<double>(shape_.tokens) : 0);
    LayerCost layer = with_weights("embedding", rows * static_cast<double>(shape_.width));
    layer.forward_seconds = layer.backward_seconds = 2 * own_stream() / bandwidth_;
    layer.work.forward_sum_bytes = whole_bytes(summed(stream()));
    layer.recomputable = false;
    return layer;
  }

  LayerCost block() const {
    LayerCost layer = with_weights("block", block_parameters(shape_) / ranks_);
    layer.work.forward_kernels = kBlockForwardKernels;
    layer.work.backward_kernels = kBlockBackwardKernels;
    const bool ours = run_.kernels == DecoderKernels::kStrata;
    const double kept =
        (ours ? strata_activation_bytes(shape_, run_.split, Recompute::kNone)
              : published_activation_bytes(shape_, run_.split, PublishedRecompute::kNone)) -
        own_stream();
    layer.saved_bytes = whole_bytes(
        ours ? strata_activation_bytes(shape_, run_.split, run_.recompute) - own_stream() : kept);
    layer.input_bytes = whole_bytes(own_stream());
    layer.forward_flops = (block_flops(shape_) - attention_flops(shape_)) *
                              static_cast<double>(run_.split.samples) / ranks_ +
                          attention();
    const double products = layer.forward_flops / rate_, pass = (kept + own_stream()) / bandwidth_;
    layer.forward_seconds = products + kForwardPasses * pass;
    layer.backward_seconds = 2 * products + kBackwardPasses * pass;
    layer.work.forward_sum_bytes = layer.work.backward_sum_bytes =
        whole_bytes(summed(2 * stream()));
    if (ours && run_.recompute >= Recompute::kProducts) add_repeated(layer);
    if (!ours && run_.recompute == Recompute::kAttention) add_repeated_scores(layer);
    add_transients(layer);
    if (ours) {
      layer.work.attention = {.samples = run_.split.samples,
                              .heads = shape_.heads / ranks_,
                              .tokens = shape_.tokens,
                              .head_width = shape_.width / shape_.heads,
                              .runs_again = run_.recompute >= Recompute::kAttention};
    }
    return layer;
  }

  // The product with the embedding's weights and the loss; norms are counted with the last block.
  LayerCost head() const {
    const double weights =
        static_cast<double>(shape_.vocabulary * shape_.width) / static_cast<double>(ranks_);
    LayerCost layer = shape_.tied ? LayerCost{} : with_weights("head", weights);
    layer.name = "head";
    if (shape_.tied) {
      layer.gradient_bytes = whole_bytes(weights * bytes_.gradient);  // of its use
      layer.replica_bytes = whole_bytes(weights * bytes_.weight);
    }
    layer.forward_flops = head_flops(shape_) * static_cast<double>(run_.split.samples) / ranks_;
    const double logits =
        rows_ * static_cast<double>(shape_.vocabulary) / ranks_ * run_.split.element_bytes;
    const double products = layer.forward_flops / rate_;
    layer.forward_seconds = products;
    layer.backward_seconds = 2 * products + kBackwardPasses * logits / bandwidth_;
    layer.work.backward_sum_bytes = whole_bytes(summed(stream()));
    const double norms = 2 * own_stream() / run_.split.element_bytes /
                         static_cast<double>(shape_.width) * kFloatBytes;
    layer.saved_bytes = whole_bytes(own_stream() + norms);
    layer.backward_transient_bytes =
        whole_bytes(gathered() + stream() - own_stream() + std::max(logit_bytes(), sum_bytes()));
    layer.no_grad_transient_bytes = whole_bytes(own_stream() + gathered() + logit_bytes());
    layer.recomputable = false;
    return layer;
  }

 private:
  double summed(double bytes) const { return ranks_ > 1 ? bytes : 0; }

  LayerCost with_weights(const char* name, double parameters) const {
    LayerCost layer{.name = name,
                    .weight_bytes = whole_bytes(parameters * bytes_.weight),
                    .gradient_bytes = whole_bytes(parameters * bytes_.gradient),
                    .state_bytes = whole_bytes(parameters * bytes_.states)};
    // An update reads gradients, reads and writes states and weights.
    layer.update_seconds =
        parameters * (bytes_.gradient + 2 * bytes_.states + 2 * bytes_.weight) / bandwidth_;
    return layer;
  }

  // Operations of a forward. Fused attention leaves out the half that causality masks.
  double attention() const {
    const double share = run_.kernels == DecoderKernels::kStrata ? 0.5 : 1;
    return share * attention_flops(shape_) * static_cast<double>(run_.split.samples) / ranks_;
  }

  // What backward computes again inside a block: the projections and the first product of the MLP,
  // seven of twelve squares of the width, and what they make passes over the memory twice.
  void add_repeated(LayerCost& layer) const {
    const double h = static_cast<double>(shape_.width);
    const double remade = strata_activation_bytes(shape_, run_.split, Recompute::kCheap) -
                          own_stream() - static_cast<double>(layer.saved_bytes);
    layer.backward_seconds +=
        7 * 2 * rows_ * h * h / ranks_ / rate_ + kForwardPasses * remade / bandwidth_;
    layer.work.backward_kernels += kRepeatedKernels;
    if (run_.recompute >= Recompute::kAttention) {
      layer.backward_seconds += attention() / rate_;
      ++layer.work.backward_kernels;
    }
    // The inputs of both products are gathered again, which is half of a sum each.
    if (run_.split.sequence_parallel)
      layer.work.backward_sum_bytes += whole_bytes(summed(stream()));
    layer.work.remade_bytes = whole_bytes(remade);
  }

  // Selective recompute of Megatron-LM: the scores of attention and what softmax and dropout keep.
  void add_repeated_scores(LayerCost& layer) const {
    const double kept =
        published_activation_bytes(shape_, run_.split, PublishedRecompute::kSelective) -
        own_stream();
    const double remade = static_cast<double>(layer.saved_bytes) - kept;
    layer.saved_bytes = whole_bytes(kept);
    layer.backward_seconds += attention() / rate_ + kForwardPasses * remade / bandwidth_;
    layer.work.remade_bytes = whole_bytes(remade);
  }

  // Gathered from the ranks that divide the residual stream, and the result of a sum over ranks.
  double gathered() const { return run_.split.sequence_parallel ? stream() : 0; }
  double sum_bytes() const {
    return ranks_ == 1 ? 0 : stream() / ranks_ + (run_.split.sequence_parallel ? stream() : 0);
  }

  // While a chunk of logits becomes loss and gradient (strata/models/decoder_layer.cpp): on a GPU
  // in the type of the values, with losses in fp64 and five sums a row among ranks.
  double logit_bytes() const {
    const double chunk = std::min(rows_, on_gpu_ ? kGpuLogitRows : kLogitRows);
    const double logits = chunk * static_cast<double>(shape_.vocabulary) / ranks_;
    const double fp32 = (logits + 3 * chunk) * kFloatBytes;
    if (!on_gpu_) return fp32 + (run_.split.element_bytes == 2 ? 2 * logits : 0);
    return logits * run_.split.element_bytes + chunk * (8 + (ranks_ > 1 ? 5 * kFloatBytes : 0));
  }

  // The peaks of strata/models/gpt.cpp: in the MLP, at the output and the gradient of the GELU.
  // Published kernels have those of Recompute::kCheap.
  void add_transients(LayerCost& layer) const {
    const bool ours = run_.kernels == DecoderKernels::kStrata;
    const double share = stream() / ranks_, summed = stream() + sum_bytes();
    // An input of the GELU that is not saved is in memory beside its output, which may be saved.
    const double again = ours && run_.recompute >= Recompute::kProducts ? 4 * share : 0;
    const double made = ours && run_.recompute == Recompute::kNone ? 0 : 4 * share;
    layer.forward_transient_bytes = whole_bytes(
        std::max(again + std::max(made + stream(), summed) - own_stream(), own_stream()));
    layer.backward_transient_bytes = whole_bytes(
        again + std::max(std::max(4 * share, 2 * made) + gathered(), summed) - own_stream());
    layer.no_grad_transient_bytes = whole_bytes(std::max(8 * share + stream(), 4 * share + summed));
  }

  const DecoderShape& shape_;
  const DecoderRun& run_;
  const ParameterBytes& bytes_;
  int ranks_;
  double rows_, rate_, bandwidth_;
  bool on_gpu_;
};

}  // namespace

DecoderModel decoder_model(const DecoderShape& shape, const DecoderRun& run,
                           const ParameterBytes& bytes, const MachineProfile& machine) {
  const DecoderCosts costs(shape, run, bytes, machine);
  const int layers = static_cast<int>(shape.layers) + 2;
  DecoderModel model{.dataflow = {.num_layers = layers},
                     .costs = {.weight_element_bytes = static_cast<int>(bytes.weight)}};
  model.costs.layers.assign(layers, costs.block());
  model.costs.layers.front() = costs.embedding();
  model.costs.layers.back() = costs.head();
  for (int l = 0; l + 1 < layers; ++l) {
    model.dataflow.values.push_back(
        {.name = "x" + std::to_string(l), .producer = l, .consumers = {l + 1}});
    model.costs.values.push_back({.bytes = whole_bytes(costs.own_stream())});
  }
  if (shape.tied)
    model.dataflow.ties.push_back({.name = "embedding", .owner = 0, .users = {layers - 1}});
  model.costs = with_gpu_costs(std::move(model.costs), machine);
  // A kernel of these models takes longer than its launch.
  model.costs.launch = {};
  return model;
}

}  // namespace strata
