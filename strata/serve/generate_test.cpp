// Tests the loop around a decoder, with a model so small that every token is predictable.
#include "strata/serve/generate.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "strata/comm/ranks.h"

namespace strata {
namespace {

constexpr std::int64_t kVocabulary = 10;

// Predicts the sum of a sequence's last token and the first token of its window; counts the tokens
// of all passes.
class Counting final : public Layer {
 public:
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {{.shape = {inputs[0].shape[0], kVocabulary}}};
  }
  std::vector<TensorSpec> cache(std::int64_t pages, std::int64_t) const override {
    return {{.shape = {pages}, .dtype = at::kLong}};
  }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor tokens = inputs[0][0];
    const std::span<const SequenceTokens> pass = context.cache->pass;
    const at::Tensor logits = at::zeros({static_cast<std::int64_t>(pass.size()), kVocabulary});
    for (std::size_t row = 0; row < pass.size(); ++row) {
      const at::Tensor first = context.cache->tensors[0][pass[row].pages[0]];
      if (pass[row].position == 0) first.fill_(tokens[pass[row].first]);
      const at::Tensor last = tokens[pass[row].first + pass[row].count - 1];
      const std::int64_t next = (last + first).item<std::int64_t>() % kVocabulary;
      logits[static_cast<std::int64_t>(row)][next] = 2;
    }
    rows += tokens.size(0);
    ++passes;
    return {logits};
  }
  mutable std::int64_t rows = 0, passes = 0;
};

struct Generated {
  std::vector<std::vector<std::int64_t>> texts;
  std::int64_t rows = 0, passes = 0;
};

Generated generated(const std::vector<GenerateRequest>& requests, std::int64_t positions) {
  const auto layer = std::make_shared<Counting>();
  Sequential model({"tokens"});
  model.add("all", layer, {"tokens"}, {"logits"});
  Generated made{.texts = std::vector<std::vector<std::int64_t>>(requests.size())};
  const PageRoom room{.page_tokens = positions,
                      .pages = static_cast<std::int64_t>(requests.size())};
  run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
    Decoder decoder(model, Mesh{}, room, group);
    generate(decoder, group, requests,
             [&](std::size_t i, std::int64_t token) { made.texts[i].push_back(token); });
  });
  made.rows = layer->rows;
  made.passes = layer->passes;
  return made;
}

std::vector<std::int64_t> text_of(const GenerateRequest& request, std::int64_t positions) {
  return generated({request}, positions).texts[0];
}

using Tokens = std::vector<std::int64_t>;

TEST(Generate, RunsEveryTokenOnce) {
  const Generated made = generated({{.prompt = {3, 1}, .tokens = 5}}, 100);
  EXPECT_EQ(made.texts[0], (Tokens{4, 7, 0, 3, 6}));  // + 3 each time
  EXPECT_EQ(made.rows, 2 + 4);
}

TEST(Generate, MovesWindowAtEndOfContext) {
  const Generated made = generated({{.prompt = {3, 1}, .tokens = 5}}, 4);
  // Windows: 31, 314, 3147, then 1470, 4701: the first of the window changes.
  EXPECT_EQ(made.texts[0], (Tokens{4, 7, 0, 1, 5}));
  EXPECT_EQ(made.rows, 2 + 1 + 1 + 4 + 4);
  EXPECT_EQ(text_of({.prompt = {9, 3, 1}, .tokens = 1}, 2), Tokens{4});
}

TEST(Generate, StopsAtEndTokenWithoutReportingIt) {
  EXPECT_EQ(text_of({.prompt = {3, 1}, .tokens = 5, .ends = {8, 0}}, 100), (Tokens{4, 7}));
  EXPECT_EQ(text_of({.prompt = {3, 1}, .tokens = 0}, 100), Tokens{});
}

// The second text ends at an end token, the third moves its window, the fourth requests no tokens.
TEST(Generate, TogetherEqualsEachAlone) {
  const std::vector<GenerateRequest> requests = {
      {.prompt = {3, 1}, .tokens = 5, .sampling = {.temperature = 1, .seed = 8}},
      {.prompt = {7, 7, 2, 4}, .tokens = 6, .ends = {5}},
      {.prompt = {1, 2, 3, 4, 5}, .tokens = 4},
      {.prompt = {6}, .tokens = 0}};
  const Generated together = generated(requests, 7);
  EXPECT_EQ(together.passes, 5);
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Generated alone = generated({requests[i]}, 7);
    EXPECT_EQ(together.texts[i], alone.texts[0]) << i;
    rows += alone.rows;
  }
  EXPECT_EQ(together.rows, rows);
  EXPECT_EQ(together.texts[1], (Tokens{1, 8}));
  EXPECT_EQ(together.texts[2].size(), 4);
}

TEST(Generate, DependsOnTemperatureAndSeed) {
  const auto text = [](double temperature, std::uint64_t seed) {
    return text_of(
        {.prompt = {3, 1}, .tokens = 40, .sampling = {.temperature = temperature, .seed = seed}},
        100);
  };
  EXPECT_EQ(text(0, 1), text(0, 2));
  EXPECT_EQ(text(1, 1), text(1, 1));
  EXPECT_NE(text(1, 1), text(1, 2));
  EXPECT_NE(text(1, 1), text(0, 1));
  EXPECT_NE(text(1, 1), text(5, 1));
}

}  // namespace
}  // namespace strata
