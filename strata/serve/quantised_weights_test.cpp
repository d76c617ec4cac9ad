// A model with weights in 8 bits has the bits of an fp32 model whose weights are the rounded
// values, on every mesh and wherever the weights live.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/int8_model.h"
#include "strata/serve/bit_check.h"
#include "strata/serve/decoder.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr int kInt8Blocks = 3;
constexpr PageRoom kInt8Room{.page_tokens = 8, .pages = 32};

// Widths that are no multiples of a tile; a rank of two has 19 and 25 columns inside the MLPs.
DecoderOptions int8_options(DecoderKind kind) {
  DecoderOptions options{
      .kind = kind, .layers = kInt8Blocks, .width = 44, .heads = 2, .vocab = 60, .context = 160};
  if (kind == DecoderKind::kLlama) {
    options.heads = 4;
    options.kv_heads = 2;
    options.head_width = 12;
    options.mlp_width = 50;
    options.qkv_bias = true;
    options.tie = false;
  }
  return options;
}

std::vector<std::int64_t> tokens_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) all[i] = (first + i * i * 7) % 60;
  return all;
}

// A prompt of many rows, several of few, single tokens.
std::vector<Pass> int8_passes() {
  std::vector<std::int32_t> one, other;
  for (std::int32_t page = 0; page < 14; ++page) {
    one.push_back(2 * page);
    other.push_back(2 * page + 1);
  }
  return {
      {{.tokens = tokens_from(1, 80), .position = 0, .pages = one, .logits = 80}},
      {{.tokens = tokens_from(5, 1), .position = 80, .pages = one, .logits = 1},
       {.tokens = tokens_from(8, 9), .position = 0, .pages = other, .logits = 2}},
      {{.tokens = tokens_from(9, 1), .position = 81, .pages = one, .logits = 1},
       {.tokens = tokens_from(3, 1), .position = 9, .pages = other, .logits = 1}},
      {{.tokens = tokens_from(2, 1), .position = 82, .pages = one, .logits = 1}},
      {{.tokens = tokens_from(4, 3), .position = 10, .pages = other, .logits = 3}},
      {{.tokens = tokens_from(6, 4), .position = 83, .pages = one, .logits = 4}},
      {{.tokens = tokens_from(7, 30), .position = 13, .pages = other, .logits = 30}},
  };
}

enum class Fill { kExact, kRounded };

// The logits of each pass, on the rank that decides.
std::vector<at::Tensor> decode_int8(const Sequential& model, const Mesh& mesh, Fill fill,
                                    const TierLayout& tiers = {}, const std::string& disk = "") {
  std::vector<at::Tensor> logits;
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, decoder_steps(model, mesh, tiers), kInt8Room, world, {.disk = disk});
    fill_with_examples(decoder, 0.1);  // replaced, as by --follow
    decoder.forward(int8_passes()[1]);
    decoder.fill([&](const std::vector<NamedState>& weights) {
      const ReadStates read = [](const std::vector<NamedState>& all) { read_examples(all); };
      fill == Fill::kExact ? read(weights) : read_rounded_to_int8(weights, read);
    });
    for (const Pass& pass : int8_passes()) {
      const at::Tensor made = decoder.forward(pass).logits;
      if (decoder.decides()) logits.push_back(made.clone());
    }
  });
  return logits;
}

void expect_equal_logits(const std::vector<at::Tensor>& got,
                         const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(got.size(), int8_passes().size());
  for (std::size_t pass = 0; pass < got.size(); ++pass)
    EXPECT_TRUE(got[pass].equal(expected[pass])) << "pass " << pass;
}

TierLayout int8_layout(Tier tier) {
  TierLayout layout{.window = 2};
  for (int layer = 0; layer < kInt8Blocks + 2; ++layer)
    layout.layers.push_back({.weights = tier, .gradients = tier, .states = tier});
  return layout;
}

class Int8Weights : public testing::TestWithParam<std::tuple<DecoderKind, Mesh>> {};

TEST_P(Int8Weights, HaveTheBitsOfAModelWithTheRoundedValues) {
  const auto [kind, mesh] = GetParam();
  const TensorSplit split{.ranks = mesh[Axis::kTensor]};
  const Sequential fp32 = make_served_model(int8_options(kind), WeightType::kPrecision, split);
  const Sequential int8 = make_served_model(int8_options(kind), WeightType::kInt8, split);
  const std::vector<at::Tensor> expected = decode_int8(fp32, mesh, Fill::kRounded);
  EXPECT_FALSE(expected[0].equal(decode_int8(fp32, mesh, Fill::kExact)[0]));
  expect_equal_logits(decode_int8(int8, mesh, Fill::kExact), expected);
  const DiskScratch folder;
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    SCOPED_TRACE(name_of(tier));
    expect_equal_logits(
        decode_int8(int8, mesh, Fill::kExact, int8_layout(tier), folder.path(name_of(tier))),
        expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Int8Weights,
    testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}})));

// What `strata evaluate` computes: a whole sample of an fp32 model with the rounded values.
TEST(Int8Decoder, HasTheLogitsOfAnEvaluationOfTheRoundedValues) {
  const DecoderOptions options = int8_options(DecoderKind::kLlama);
  const Sequential fp32 = make_served_model(options, WeightType::kPrecision);
  const Sequential int8 = make_served_model(options, WeightType::kInt8);
  const auto rounded = [](const std::string& name, const std::vector<std::int64_t>& shape) {
    NamedState weight{.name = name, .shape = shape};
    weight.runs = {{0, 0, weight.numel()}};
    weight.local = at::empty({weight.numel()}, host_options(at::kFloat));
    read_rounded_to_int8({weight}, [](const std::vector<NamedState>& all) { read_examples(all); });
    return weight.local.view(shape);
  };
  const std::vector<std::int64_t> tokens = tokens_from(3, options.context);
  run_thread_ranks({}, [&](Group& world, MemoryAccount&) {
    const at::Tensor whole = whole_logits(fp32, nullptr, tokens, rounded);
    Decoder decoder(int8, Mesh{}, {.page_tokens = options.context, .pages = 1}, world);
    fill_with_examples(decoder);
    PassTokens next{.pages = {0}};
    for (const std::int64_t count : {70, 1, 1, 5, 2, 66, 3, 4, 8}) {
      next.tokens = {tokens.begin() + next.position, tokens.begin() + next.position + count};
      next.logits = count;
      EXPECT_TRUE(decoder.forward({next}).logits.equal(whole.narrow(0, next.position, count)))
          << count << " tokens from " << next.position;
      next.position += count;
    }
    EXPECT_EQ(next.position, options.context);
  });
}

}  // namespace
}  // namespace strata
