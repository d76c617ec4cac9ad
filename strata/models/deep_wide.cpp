// One layer maps numbers and rows to their widths and computes the wide part, too, so that the rows
// have one reader.
#include "strata/models/recommender_layer.h"
#include "strata/nn/ops/interaction.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

// (numbers if there are any, rows) -> [B, widths of both], and the wide part [B, 1]
class DeepWideInput final : public Layer {
 public:
  explicit DeepWideInput(const RecommenderSetup& setup)
      : numeric_(setup.inputs.numeric), wide_(setup.options.wide), dropout_(setup.options.dropout) {
    const bool norm = setup.options.batch_norm != BatchNormPlace::kNone;
    const HiddenActivation activation = setup.options.activation;
    numbers_ = {numeric_, setup.options.bottom.front(), norm, activation};
    rows_ = {setup.inputs.rows(), setup.options.bottom.back(), norm, activation};
  }

  std::int64_t out() const { return (numeric_ > 0 ? numbers_.out : 0) + rows_.out; }

  std::string signature() const override {
    return "deep_wide.input " + rows_.signature() + (numeric_ > 0 ? numbers_.signature() : "") +
           (wide_ ? " wide" : "") + (dropout_ > 0 ? " dropout" : "");
  }

  // The weights for rows, then those for numbers.
  std::vector<WeightSpec> weights() const override {
    std::vector<WeightSpec> specs = rows_.weights("rows.");
    const auto add = [&](std::vector<WeightSpec> more) {
      specs.insert(specs.end(), more.begin(), more.end());
    };
    if (wide_) add({map_weight("wide.rows.weight", 1, rows_.in)});
    if (numeric_ > 0) add(numbers_.weights("numeric."));
    if (numeric_ > 0 && wide_) add({map_weight("wide.numeric.weight", 1, numeric_)});
    return specs;
  }

  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    const std::int64_t samples = inputs[0].shape[0];
    std::vector<TensorSpec> specs = {{.shape = {samples, out()}}};
    if (wide_) specs.push_back({.shape = {samples, 1}});
    return specs;
  }

  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor &numbers = inputs.front(), &rows = inputs.back();
    const std::size_t of_rows = rows_.num_weights() + (wide_ ? 1 : 0);
    at::Tensor x = rows_.forward(context, weights, rows), wide;
    if (wide_) wide = linear(rows, weights[of_rows - 1], at::Tensor());
    if (numeric_ > 0) {
      x = side_by_side(numbers_.forward(context, weights.subspan(of_rows), numbers), x);
      if (wide_) wide = residual_add(linear(numbers, weights.back(), at::Tensor()), wide);
    }
    x = dropout(x, {dropout_, 0}, context);
    if (!wide_) return {x};
    return {x, wide};
  }

 private:
  std::int64_t numeric_;
  bool wide_;
  double dropout_;
  HiddenUnit numbers_, rows_;
};

}  // namespace

void add_deep_wide(Sequential& model, const RecommenderSetup& setup) {
  const auto layer = std::make_shared<DeepWideInput>(setup);
  std::vector<std::string> inputs = {"rows"}, outputs = {"x"};
  if (setup.inputs.numeric > 0) inputs.insert(inputs.begin(), "numeric");
  if (setup.options.wide) outputs.push_back("wide");
  model.add("input", layer, inputs, outputs);
  add_head(model, setup, add_top(model, setup, layer->out()), setup.options.wide);
}

}  // namespace strata
