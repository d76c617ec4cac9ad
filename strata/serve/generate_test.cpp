// The loop around a decoder, on a model so small that every token can be foretold.
#include "strata/serve/generate.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <array>
#include <cmath>

#include "strata/comm/ranks.h"

namespace strata {
namespace {

constexpr std::int64_t kVocabulary = 10;

// Says that the sum of the last token and the first one of its window comes next; counts the rows
// that it is given.
class Counting final : public Layer {
 public:
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], kVocabulary}}};
  }
  std::vector<TensorSpec> cache(std::int64_t samples, std::int64_t) const override {
    return {{.shape = {samples}, .dtype = at::kLong}};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor& tokens = inputs[0];
    const at::Tensor& first = context.cache->tensors[0];
    if (context.cache->position == 0) first.fill_(tokens[0][0]);
    rows += tokens.size(1);
    const std::int64_t last = tokens[0][tokens.size(1) - 1].item<std::int64_t>();
    const at::Tensor logits = at::zeros({1, kVocabulary});
    logits[0][(last + first[0].item<std::int64_t>()) % kVocabulary] = 2;
    return {logits};
  }
  mutable std::int64_t rows = 0;
};

struct Told {
  std::vector<std::int64_t> tokens;
  std::int64_t rows = 0;
};

Told told(const GenerateRequest& request, std::int64_t positions) {
  const auto layer = std::make_shared<Counting>();
  Sequential model({"tokens"});
  model.add("all", layer, {"tokens"}, {"logits"});
  Told told;
  run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
    Decoder decoder(model, {}, positions, group);
    generate(decoder, group, request, [&](std::int64_t token) { told.tokens.push_back(token); });
  });
  told.rows = layer->rows;
  return told;
}

using Tokens = std::vector<std::int64_t>;

TEST(Generate, RunsEveryTokenOnce) {
  const Told text = told({.prompt = {3, 1}, .tokens = 5}, 100);
  EXPECT_EQ(text.tokens, (Tokens{4, 7, 0, 3, 6}));  // + 3 each time
  EXPECT_EQ(text.rows, 2 + 4);
}

TEST(Generate, MovesItsWindowWhereTheContextEnds) {
  const Told text = told({.prompt = {3, 1}, .tokens = 5}, 4);
  // Windows: 31, 314, 3147, then 1470, 4701: the first of the window changes.
  EXPECT_EQ(text.tokens, (Tokens{4, 7, 0, 1, 5}));
  EXPECT_EQ(text.rows, 2 + 1 + 1 + 4 + 4);
  EXPECT_EQ(told({.prompt = {9, 3, 1}, .tokens = 1}, 2).tokens, Tokens{4});
}

TEST(Generate, EndsBehindATokenThatEndsATextAndDoesNotTellIt) {
  EXPECT_EQ(told({.prompt = {3, 1}, .tokens = 5, .ends = {8, 0}}, 100).tokens, (Tokens{4, 7}));
  EXPECT_EQ(told({.prompt = {3, 1}, .tokens = 0}, 100).tokens, Tokens{});
}

TEST(Generate, DrawsByTemperatureAndSeed) {
  const auto text = [](double temperature, std::uint64_t seed) {
    return told({.prompt = {3, 1}, .tokens = 40, .sampler = {temperature, seed}}, 100).tokens;
  };
  EXPECT_EQ(text(0, 1), text(0, 2));
  EXPECT_EQ(text(1, 1), text(1, 1));
  EXPECT_NE(text(1, 1), text(1, 2));
  EXPECT_NE(text(1, 1), text(0, 1));
  EXPECT_NE(text(1, 1), text(5, 1));
}

constexpr std::array<float, 4> kLogits = {0.5f, 2.0f, -1.0f, 2.0f};

at::Tensor logits() { return at::tensor(at::ArrayRef<float>(kLogits)).unsqueeze(0); }

TEST(TokenSampler, TakesTheFirstOfTheLikeliestAtTemperatureZero) {
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(TokenSampler(0, i).choose(logits(), i), 1);
}

TEST(TokenSampler, DrawsInTheProportionsOfTheSoftmaxAtItsTemperature) {
  constexpr int kDraws = 20000;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::array<double, 4> expected{}, counts{};
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += expected[i] = std::exp(kLogits[i] / temperature);
    const TokenSampler sampler(temperature, 7);
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<std::size_t>(sampler.choose(logits(), static_cast<std::uint32_t>(i)))];
    // Five standard deviations of a binomial at most.
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(counts[i] / kDraws, expected[i] / sum, 5 * 0.5 / std::sqrt(kDraws))
          << temperature;
  }
}

// Every bit of the seed counts, and so does the number of the token.
TEST(TokenSampler, IsKeyedBySeedAndNumber) {
  const auto drawn = [](std::uint64_t seed, std::uint32_t first) {
    std::string text;
    for (std::uint32_t i = 0; i < 32; ++i)
      text += std::to_string(TokenSampler(2, seed).choose(logits(), first + i));
    return text;
  };
  EXPECT_EQ(drawn(1, 0), drawn(1, 0));
  EXPECT_NE(drawn(1, 0), drawn(2, 0));
  EXPECT_NE(drawn(1, 0), drawn(1 + (std::uint64_t{1} << 32), 0));
  EXPECT_NE(drawn(1, 0), drawn(1, 32));
}

}  // namespace
}  // namespace strata
