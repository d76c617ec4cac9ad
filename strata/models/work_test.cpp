// Tests the work of decoders' layers that the planner counts in addition to bytes and products.
#include <gtest/gtest.h>

#include <utility>

#include "strata/models/model.h"

namespace strata {
namespace {

constexpr std::int64_t kSamples = 2, kTokens = 16, kWidth = 32;

LayerWork work_of(const Sequential& model, int layer) {
  const TensorSpec tokens{{kSamples, kTokens}, at::kLong};
  const std::vector<TensorSpec> batch = {tokens, tokens};
  return model.layer(layer).work(model.input_specs(layer, batch, model.value_specs(batch)));
}

// Megatron (SC'21), section 3.2: two sums of the stream in a block's forward and two in its
// backward, one in the embedding's forward, one in the head's backward; sequence parallelism moves
// as many bytes.
TEST(LayerWork, HasPublishedSumsOfTensorParallelRanks) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
    for (const bool sequence : {false, true}) {
      const DecoderOptions options{
          .kind = kind, .layers = 1, .width = kWidth, .heads = 4, .context = kTokens};
      const Sequential model =
          make_model(options, DecoderOutput::kLoss, {.ranks = 4, .sequence = sequence});
      const std::int64_t stream = kSamples * kTokens * kWidth * 4;
      const LayerWork embedding = work_of(model, 0), block = work_of(model, 1),
                      head = work_of(model, 2);
      EXPECT_EQ(embedding.forward_sum_bytes, stream);
      EXPECT_EQ(embedding.backward_sum_bytes, 0);
      EXPECT_EQ(block.forward_sum_bytes, 2 * stream);
      EXPECT_EQ(block.backward_sum_bytes, 2 * stream);
      EXPECT_EQ(head.forward_sum_bytes, 0);
      EXPECT_EQ(head.backward_sum_bytes, stream);
    }
}

// R rows of width C: products of 2 R C operations a column, and attention, causal, of 2 R T C. A
// GPT has 3 C columns of queries, keys and values and 4 C inside the MLP; a Llama with 2 of 4
// heads of keys 2 C, and 2 F.
TEST(LayerWork, RepeatsProductsThenAttention) {
  constexpr double kRows = kSamples * kTokens, kAttention = 2 * kRows * kTokens * kWidth;
  const auto repeated = [](const DecoderOptions& options, TensorSplit split, Recompute level) {
    const Sequential model = make_model(options, DecoderOutput::kLoss, split);
    const TensorSpec tokens{{kSamples, kTokens}, at::kLong};
    const std::vector<TensorSpec> batch = {tokens, tokens};
    return model.layer(1).repeated_work(model.input_specs(1, batch, model.value_specs(batch)),
                                        level);
  };
  const DecoderOptions gpt{.layers = 1, .width = kWidth, .heads = 4, .context = kTokens};
  const DecoderOptions llama{.kind = DecoderKind::kLlama,
                             .layers = 1,
                             .width = kWidth,
                             .heads = 4,
                             .context = kTokens,
                             .kv_heads = 2,
                             .mlp_width = 80};
  EXPECT_EQ(repeated(gpt, {}, Recompute::kCheap).flops, 0);
  for (const auto& [options, columns] :
       {std::pair(gpt, 7.0 * kWidth), std::pair(llama, 2.0 * kWidth + 2 * 80)}) {
    const double products = 2 * kRows * kWidth * columns;
    EXPECT_DOUBLE_EQ(repeated(options, {}, Recompute::kProducts).flops, products);
    EXPECT_DOUBLE_EQ(repeated(options, {}, Recompute::kAttention).flops, products + kAttention);
    EXPECT_EQ(repeated(options, {}, Recompute::kAttention).sum_bytes, 0);
    for (const bool sequence : {false, true}) {
      const RepeatedWork half =
          repeated(options, {.ranks = 2, .sequence = sequence}, Recompute::kAttention);
      EXPECT_DOUBLE_EQ(half.flops, (products + kAttention) / 2);
      // Two gathers of the stream take as long as one sum.
      EXPECT_EQ(half.sum_bytes, sequence ? kSamples * kTokens * kWidth * 4 : 0);
    }
  }
}

// Two products of 2 C operations for each pair of query and key in the blocks: one block of 64 keys
// for the first 64 queries, two for the others.
TEST(LayerWork, CountsThePairsOfAPattern) {
  constexpr std::int64_t kLong = 128;
  const auto flops_of = [](const AttentionPattern& pattern) {
    const Sequential model = make_model(
        {.layers = 1, .width = kWidth, .heads = 4, .context = kLong, .attention = pattern});
    const TensorSpec tokens{{kSamples, kLong}, at::kLong};
    const std::vector<TensorSpec> batch = {tokens, tokens};
    return model.layer(1).forward_flops(model.input_specs(1, batch, model.value_specs(batch)));
  };
  const double dense = 2.0 * kSamples * kLong * kLong * kWidth;
  const double sparse = 4.0 * kSamples * (64 * 64 * (1 + 2)) * kWidth;
  EXPECT_DOUBLE_EQ(flops_of({}) - flops_of({.kind = PatternKind::kSliding, .window = 16}),
                   dense - sparse);
}

TEST(LayerWork, HasNoSumsOnOneRank) {
  const Sequential model =
      make_model({.layers = 1, .width = kWidth, .heads = 4, .context = kTokens});
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(work_of(model, layer).forward_sum_bytes, 0) << layer;
    EXPECT_EQ(work_of(model, layer).backward_sum_bytes, 0) << layer;
  }
}

TEST(LayerWork, DescribesAttentionOnlyIn16Bit) {
  const DecoderOptions options{.kind = DecoderKind::kLlama,
                               .layers = 1,
                               .width = kWidth,
                               .heads = 4,
                               .context = kTokens,
                               .kv_heads = 2};
  const auto attention = [&](at::ScalarType precision, TensorSplit split) {
    return work_of(make_model(options, DecoderOutput::kLoss, split, precision), 1).attention;
  };
  EXPECT_EQ(attention(at::kFloat, {}).heads, 0);
  const AttentionShape whole = attention(at::kBFloat16, {});
  EXPECT_EQ(whole.samples, kSamples);
  EXPECT_EQ(whole.heads, 4);
  EXPECT_EQ(whole.tokens, kTokens);
  EXPECT_EQ(whole.head_width, kWidth / 4);
  EXPECT_TRUE(whole.shares_keys);
  const AttentionShape half = attention(at::kBFloat16, {.ranks = 2, .sequence = true});
  EXPECT_EQ(half.heads, 2);
  EXPECT_EQ(half.tokens, kTokens);
  const Sequential gpt = make_model({.layers = 1, .width = kWidth, .heads = 4, .context = kTokens},
                                    DecoderOutput::kLoss, {}, at::kBFloat16);
  EXPECT_FALSE(work_of(gpt, 1).attention.shares_keys);
}

TEST(LayerWork, CountsMoreKernelsInBlockThanInEmbeddingAndHead) {
  const Sequential model =
      make_model({.layers = 1, .width = kWidth, .heads = 4, .context = kTokens});
  EXPECT_EQ(work_of(model, 1).forward_kernels, 10);
  EXPECT_EQ(work_of(model, 1).backward_kernels, 36);
  for (const int end : {0, 2}) {
    EXPECT_EQ(work_of(model, end).forward_kernels, 3);
    EXPECT_EQ(work_of(model, end).backward_kernels, 14);
  }
}

}  // namespace
}  // namespace strata
