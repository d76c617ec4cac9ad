// A model with weights in 8 or 4 bits has the bits of an fp32 model whose weights are the rounded
// values, on every mesh and wherever the weights live.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/quantised_model.h"
#include "strata/serve/bit_check.h"
#include "strata/serve/decoder.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr int kFewBitsBlocks = 3;
constexpr PageRoom kFewBitsRoom{.page_tokens = 8, .pages = 32};

// Widths that are no multiples of a tile; a rank of two has 19 and 25 columns inside the MLPs. In 4
// bits a rank has whole groups of each row, and the stream of a Llama has none.
DecoderOptions options_of(DecoderKind kind, WeightType type) {
  DecoderOptions options{
      .kind = kind, .layers = kFewBitsBlocks, .width = 44, .heads = 2, .vocab = 60, .context = 160};
  if (kind == DecoderKind::kLlama) {
    options.heads = 4;
    options.kv_heads = 2;
    options.head_width = 12;
    options.mlp_width = 50;
    options.qkv_bias = true;
    options.tie = false;
  }
  if (type == WeightType::kInt4) {
    if (kind == DecoderKind::kGpt) options.width = 64;
    options.head_width = kind == DecoderKind::kGpt ? 0 : 16;
    options.mlp_width = kind == DecoderKind::kGpt ? 0 : 128;
  }
  return options;
}

std::vector<std::int64_t> tokens_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) all[i] = (first + i * i * 7) % 60;
  return all;
}

// A prompt of many rows, several of few, single tokens.
std::vector<Pass> few_bits_passes() {
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
std::vector<at::Tensor> decode_few_bits(const Sequential& model, const Mesh& mesh, WeightType type,
                                        Fill fill, const TierLayout& tiers = {},
                                        const std::string& disk = "") {
  std::vector<at::Tensor> logits;
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, decoder_steps(model, mesh, tiers), kFewBitsRoom, world, {.disk = disk});
    fill_with_examples(decoder, 0.1);  // replaced, as by --follow
    decoder.forward(few_bits_passes()[1]);
    decoder.fill([&](const std::vector<NamedState>& weights) {
      const ReadStates read = [](const std::vector<NamedState>& all) { read_examples(all); };
      fill == Fill::kExact ? read(weights) : read_rounded(rounding_of(type), weights, read);
    });
    for (const Pass& pass : few_bits_passes()) {
      const at::Tensor made = decoder.forward(pass).logits;
      if (decoder.decides()) logits.push_back(made.clone());
    }
  });
  return logits;
}

void expect_equal_logits(const std::vector<at::Tensor>& got,
                         const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(got.size(), few_bits_passes().size());
  for (std::size_t pass = 0; pass < got.size(); ++pass)
    EXPECT_TRUE(got[pass].equal(expected[pass])) << "pass " << pass;
}

TierLayout few_bits_layout(Tier tier) {
  TierLayout layout{.window = 2};
  for (int layer = 0; layer < kFewBitsBlocks + 2; ++layer)
    layout.layers.push_back({.weights = tier, .gradients = tier, .states = tier});
  return layout;
}

class QuantisedWeights : public testing::TestWithParam<std::tuple<DecoderKind, WeightType, Mesh>> {
};

TEST_P(QuantisedWeights, HaveTheBitsOfAModelWithTheRoundedValues) {
  const auto [kind, type, mesh] = GetParam();
  const TensorSplit split{.ranks = mesh[Axis::kTensor]};
  const DecoderOptions options = options_of(kind, type);
  const Sequential fp32 = make_served_model(options, WeightType::kPrecision, split);
  const Sequential small = make_served_model(options, type, split);
  const std::vector<at::Tensor> expected = decode_few_bits(fp32, mesh, type, Fill::kRounded);
  EXPECT_FALSE(expected[0].equal(decode_few_bits(fp32, mesh, type, Fill::kExact)[0]));
  expect_equal_logits(decode_few_bits(small, mesh, type, Fill::kExact), expected);
  const DiskScratch folder;
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    SCOPED_TRACE(name_of(tier));
    expect_equal_logits(decode_few_bits(small, mesh, type, Fill::kExact, few_bits_layout(tier),
                                        folder.path(name_of(tier))),
                        expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, QuantisedWeights,
    testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                     testing::Values(WeightType::kInt8, WeightType::kInt4),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}})));

// What `strata evaluate` computes: a whole sample of an fp32 model with the rounded values.
class QuantisedDecoder : public testing::TestWithParam<WeightType> {};

TEST_P(QuantisedDecoder, HasTheLogitsOfAnEvaluationOfTheRoundedValues) {
  const DecoderOptions options = options_of(DecoderKind::kLlama, GetParam());
  const Sequential fp32 = make_served_model(options, WeightType::kPrecision);
  const Sequential small = make_served_model(options, GetParam());
  const auto rounded = [](const std::string& name, const std::vector<std::int64_t>& shape) {
    NamedState weight{.name = name, .shape = shape};
    weight.runs = {{0, 0, weight.numel()}};
    weight.local = at::empty({weight.numel()}, host_options(at::kFloat));
    read_rounded(rounding_of(GetParam()), {weight},
                 [](const std::vector<NamedState>& all) { read_examples(all); });
    return weight.local.view(shape);
  };
  const std::vector<std::int64_t> tokens = tokens_from(3, options.context);
  run_thread_ranks({}, [&](Group& world, MemoryAccount&) {
    const at::Tensor whole = whole_logits(fp32, nullptr, tokens, rounded);
    Decoder decoder(small, Mesh{}, {.page_tokens = options.context, .pages = 1}, world);
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

INSTANTIATE_TEST_SUITE_P(Types, QuantisedDecoder,
                         testing::Values(WeightType::kInt8, WeightType::kInt4));

TEST(QuantisedModel, RefusesRanksThatDivideAGroup) {
  const DecoderOptions options = options_of(DecoderKind::kLlama, WeightType::kInt8);
  EXPECT_NO_THROW(make_served_model(options, WeightType::kInt4));
  try {
    make_served_model(options, WeightType::kInt4, {.ranks = 2});
    FAIL();
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[models.split] mesh.tp: 2 tensor-parallel ranks"), std::string::npos)
        << text;
    EXPECT_NE(text.find("48 inputs of attention.out.weight"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace strata
