// One layer reads the rows and combines them with the numbers.
#include <algorithm>

#include "strata/models/recommender_layer.h"
#include "strata/nn/ops/interaction.h"

namespace strata {
namespace {

// ([B, width] of the numbers if there are any, rows) -> [B, width + products]
class PairwiseDots final : public Layer {
 public:
  PairwiseDots(std::int64_t vectors, std::int64_t width, bool numbers)
      : vectors_(vectors), width_(width), numbers_(numbers) {}

  std::int64_t out() const { return (numbers_ ? width_ : 0) + pairs(); }

  std::string signature() const override {
    return "dlrm.dots " + std::to_string(vectors_) + " " + std::to_string(width_) +
           (numbers_ ? " numbers" : "");
  }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], out()}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    return {pairwise_dots(numbers_ ? inputs[0] : at::Tensor(), inputs.back(), width_)};
  }
  LayerBytes bytes(std::span<const TensorSpec>, Recompute) const override { return {}; }
  bool recomputable() const override { return false; }
  double forward_flops(std::span<const TensorSpec> inputs) const override {
    return 2.0 * static_cast<double>(inputs[0].shape[0]) * static_cast<double>(pairs() * width_);
  }

 private:
  std::int64_t pairs() const { return vectors_ * (vectors_ - 1) / 2; }
  std::int64_t vectors_, width_;
  bool numbers_;
};

}  // namespace

void add_dlrm(Sequential& model, const RecommenderSetup& setup) {
  const auto& [options, inputs, output] = setup;
  const bool numbers = inputs.numeric > 0;
  const std::int64_t rows = inputs.rows();
  std::int64_t width =
      add_hidden(model, setup, "bottom", options.bottom,
                 options.batch_norm != BatchNormPlace::kNone, inputs.numeric, "numeric");
  const std::vector<std::string> meeting =
      numbers ? std::vector<std::string>{"x", "rows"} : std::vector<std::string>{"rows"};
  if (options.interaction == Interaction::kDot) {
    const std::int64_t each = numbers ? width : *std::ranges::min_element(inputs.row_widths);
    const auto dots =
        std::make_shared<PairwiseDots>(rows / each + (numbers ? 1 : 0), each, numbers);
    model.add("interaction", dots, meeting, {"x"});
    width = dots->out();
  } else {
    add_side_by_side(model, "interaction", meeting, "x");
    width = rows + (numbers ? width : 0);
  }
  add_head(model, setup, add_top(model, setup, width));
}

}  // namespace strata
