// Attention with dropout against one without, and against its definition for the mask that was
// drawn.
#include "strata/exported/attention_dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include "strata/device/device.h"

namespace strata {
namespace {

const at::TensorOptions kFp32 = host_options(at::kFloat);
constexpr std::int64_t kSamples = 3, kHeads = 4, kLength = 10, kWidth = 8;
const ForwardContext kTraining{.training = true, .seed = 3, .step = 2, .layer = 1};

struct Operands {
  at::Tensor q = at::randn({kSamples, kHeads, kLength, kWidth}, kFp32);
  at::Tensor k = at::randn({kSamples, kHeads, kLength, kWidth}, kFp32);
  at::Tensor v = at::randn({kSamples, kHeads, kLength, kWidth}, kFp32);
};

TEST(AttentionDropout, IsFusedAttentionWithoutDropout) {
  const Operands x;
  const at::Tensor expected = at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0, true);
  EXPECT_TRUE(
      attend_with_dropout(x.q, x.k, x.v, {.causal = true}, kSamples, {.probability = 0.5}, {})
          .equal(expected));
  EXPECT_TRUE(attend_with_dropout(x.q, x.k, x.v, {.causal = true}, kSamples, {}, kTraining)
                  .equal(expected));
}

// With values of an identity matrix the output is the kept probabilities.
TEST(AttentionDropout, DropsProbabilitiesBeforeTheyWeighValues) {
  const Operands x;
  const at::Tensor identity = at::eye(kLength, kFp32).expand({kSamples, kHeads, kLength, kLength});
  const at::Tensor mask = at::rand({kSamples, 1, kLength, kLength}, kFp32)
                              .gt(0.3)
                              .logical_or(at::eye(kLength, kFp32).to(at::kBool));
  const at::Tensor summand = at::randn({kLength, kLength}, kFp32);
  for (const AttentionForm& how :
       {AttentionForm{}, AttentionForm{.causal = true}, AttentionForm{.mask = mask},
        AttentionForm{.mask = summand, .scale = 0.7}}) {
    const at::Tensor kept =
        attend_with_dropout(x.q, x.k, identity, how, kSamples, {.probability = 0.25}, kTraining);
    const at::Tensor all = at::scaled_dot_product_attention(
        x.q, x.k, identity, how.mask.defined() ? std::optional(how.mask) : std::nullopt, 0,
        how.causal, how.scale);
    const at::Tensor zeros = kept.eq(0).logical_and(all.gt(1e-6));
    const double seen = all.gt(1e-6).sum().item<double>();
    const double dropped = zeros.sum().item<double>();
    EXPECT_NEAR(dropped / seen, 0.25, 0.06);
    const at::Tensor difference = (kept * 0.75 - all).masked_fill(zeros, 0).abs();
    EXPECT_LT(difference.max().item<float>(), 1e-6);
    EXPECT_LT((at::matmul(kept, x.v) -
               attend_with_dropout(x.q, x.k, x.v, how, kSamples, {.probability = 0.25}, kTraining))
                  .abs()
                  .max()
                  .item<float>(),
              1e-5);
  }
}

TEST(AttentionDropout, LetsHeadsShareKeys) {
  const Operands x;
  const at::Tensor k = x.k.narrow(1, 0, 2), v = x.v.narrow(1, 0, 2);
  const AttentionForm shared{.causal = true, .shares_keys = true};
  EXPECT_TRUE(
      attend_with_dropout(x.q, k, v, shared, kSamples, {.probability = 0.4}, kTraining)
          .equal(attend_with_dropout(x.q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1),
                                     {.causal = true}, kSamples, {.probability = 0.4}, kTraining)));
}

// As on a rank with the last samples of the mini-batch.
TEST(AttentionDropout, DependsOnTheSampleAlone) {
  const Operands x;
  const Dropout dropout{.probability = 0.3, .site = 2};
  const at::Tensor whole = attend_with_dropout(x.q, x.k, x.v, {}, kSamples, dropout, kTraining);
  ForwardContext last = kTraining;
  last.first_sample = 1;
  const auto part = [](const at::Tensor& t) { return t.narrow(0, 1, 2); };
  EXPECT_LT(
      (attend_with_dropout(part(x.q), part(x.k), part(x.v), {}, 2, dropout, last) - part(whole))
          .abs()
          .max()
          .item<float>(),
      1e-6);
}

}  // namespace
}  // namespace strata
