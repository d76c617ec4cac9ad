// The first layer joins numbers and rows to one value, which every cross reads again.
#include "strata/models/recommender_layer.h"
#include "strata/nn/ops/interaction.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

// x0 * (W x + b) + x; the first cross has x = x0. W = U V if the rank is not full.
class Cross final : public Layer {
 public:
  Cross(std::int64_t width, std::int64_t rank) : width_(width), rank_(rank) {}

  std::string signature() const override {
    return "dcn.cross " + std::to_string(width_) + " " + std::to_string(rank_);
  }
  std::vector<WeightSpec> weights() const override {
    if (rank_ == 0) return {map_weight("weight", width_, width_), map_bias("bias", width_, width_)};
    return {map_weight("down.weight", rank_, width_), map_weight("up.weight", width_, rank_),
            map_bias("bias", width_, rank_)};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  // Saves the product and, with a lower rank, the inner product. The first cross returns the sum of
  // the gradients for x0 and x, so it needs both. Kept for the weights: the gradients at both
  // products and, with a lower rank, the inner product.
  LayerBytes bytes(std::span<const TensorSpec> inputs, Recompute) const override {
    const std::int64_t whole = inputs[0].bytes();
    return {.saved = whole + whole / width_ * rank_,
            .backward_transient = inputs.size() == 1 ? whole : 0,
            .kept = whole + 2 * (whole / width_ * rank_),
            .weight_transient = 0};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor &x0 = inputs.front(), &x = inputs.back();
    at::Tensor h = x;
    if (rank_ > 0) h = linear(x, weights.front(), at::Tensor());
    return {cross(x0, linear(h, weights[weights.size() - 2], weights.back()), x)};
  }

 private:
  std::int64_t width_, rank_;
};

}  // namespace

void add_dcn(Sequential& model, const RecommenderSetup& setup) {
  const auto& [options, inputs, output] = setup;
  const std::int64_t width = inputs.numeric + inputs.rows();
  const bool parallel = options.interaction == Interaction::kParallel;
  const std::string crossed = parallel ? "crossed" : "x";
  std::vector<std::string> sources = {"rows"};
  if (inputs.numeric > 0) sources.insert(sources.begin(), "numeric");
  add_side_by_side(model, "input", sources, "x0");
  const auto layer = std::make_shared<Cross>(width, options.rank);
  for (std::int64_t i = 0; i < options.cross_layers; ++i) {
    std::vector<std::string> reads = {"x0"};
    if (i > 0) reads.push_back(crossed);
    model.add("cross" + std::to_string(i), layer, reads, {crossed});
  }
  if (!parallel) return add_head(model, setup, add_top(model, setup, width));
  const std::int64_t deep = add_top(model, setup, width, "x0");
  add_side_by_side(model, "merge", {"crossed", options.top.empty() ? "x0" : "x"}, "x");
  add_head(model, setup, width + deep);
}

}  // namespace strata
