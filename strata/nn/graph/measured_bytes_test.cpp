// Layers without stated costs: the expected measurements are computed by hand.
#include "strata/nn/graph/measured_bytes.h"

#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include "strata/nn/graph/same_layer_test.h"

namespace strata {
namespace {

constexpr std::int64_t kRows = 64, kWidth = 32, kInside = 96, kFloat = 4;

// tanh(x up)² down: the graph keeps the tanh and its square.
class Square final : public Layer {
 public:
  explicit Square(std::int64_t inside = kInside) : inside_(inside) {}
  std::vector<WeightSpec> weights() const override {
    return {{.name = "up", .shape = {kWidth, inside_}, .init = {Init::Kind::kNormal, 0.1}},
            {.name = "down", .shape = {inside_, kWidth}, .init = {Init::Kind::kNormal, 0.1}}};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const auto [up, down] = named<2>(weights);
    return {at::mm(at::mm(inputs[0], up).tanh().square(), down)};
  }

 private:
  std::int64_t inside_;
};

std::vector<TensorSpec> rows(std::int64_t count) { return {{.shape = {count, kWidth}}}; }

TEST(MeasuredBytes, CountSavedAndTransientBytes) {
  const std::int64_t inside = kRows * kInside * kFloat;
  const LayerBytes bytes = Square().bytes(rows(kRows), Recompute::kCheap);
  EXPECT_EQ(bytes.saved, 2 * inside);               // inputs and outputs are counted elsewhere
  EXPECT_EQ(bytes.forward_transient, inside);       // the product, until the end of its statement
  EXPECT_GE(bytes.backward_transient, inside);      // at least one gradient inside
  EXPECT_LE(bytes.backward_transient, 4 * inside);  // plus gradients of the weights
  EXPECT_EQ(Square().bytes(rows(3 * kRows), Recompute::kCheap).saved, 3 * bytes.saved);
}

TEST(MeasuredBytes, AreZeroForLayerThatKeepsNothing) {
  const LayerBytes bytes = SameLayer().bytes(rows(kRows), Recompute::kCheap);
  EXPECT_EQ(bytes.saved, 0);
  EXPECT_EQ(bytes.forward_transient, 0);
}

TEST(LayerDefaults, DistinguishSizesAndCountProductsOfEveryRow) {
  EXPECT_EQ(Square().signature(), Square().signature());
  EXPECT_NE(Square().signature(), Square(kWidth).signature());
  EXPECT_NE(Square().signature(), SameLayer().signature());
  EXPECT_DOUBLE_EQ(Square().forward_flops(rows(kRows)), 2.0 * kRows * 2 * kWidth * kInside);
  EXPECT_TRUE(Square().cache(1, 10).empty());
  EXPECT_TRUE(Square().recomputable());
}

}  // namespace
}  // namespace strata
