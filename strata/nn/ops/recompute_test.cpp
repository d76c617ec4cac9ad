// Levels of recompute change no bit, in whole and divided backwards, and free what they should.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <functional>
#include <string>
#include <vector>

#include "strata/device/account.h"
#include "strata/nn/graph/backward_halves.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/residual.h"

namespace strata {
namespace {

constexpr std::int64_t kWidth = 32, kHeadWidth = 8, kTokens = 33, kSamples = 2, kInside = 64;

struct Block {
  bool is_llama = false;
  bool norms_heads = false;
  at::ScalarType dtype = at::kFloat;
};

class RecomputeLevel : public testing::TestWithParam<Block> {
 protected:
  RecomputeLevel() { install_accounting_allocator(); }

  enum Weight { kGain, kQkv, kOut, kUp, kDown, kQueryGain, kKeyGain, kBias, kQkvBias, kUpBias };

  std::vector<at::Tensor> weights() const {
    const std::int64_t kv = GetParam().is_llama ? 2 : 4;
    std::vector<at::Tensor> all;
    const auto add = [&](at::IntArrayRef shape) {
      at::Tensor weight =
          at::randn(shape).mul(0.3).to(GetParam().dtype).detach().requires_grad_(true);
      weight.mutable_grad() = at::randn(shape);
      all.push_back(weight);
    };
    add({kWidth});
    add({(4 + 2 * kv) * kHeadWidth, kWidth});
    add({kWidth, 4 * kHeadWidth});
    add({GetParam().is_llama ? 2 * kInside : kInside, kWidth});
    add({kWidth, kInside});
    add({kHeadWidth});
    add({kHeadWidth});
    add({kWidth});
    add({(4 + 2 * kv) * kHeadWidth});
    add({kInside});
    return all;
  }

  static at::Tensor forward(const at::Tensor& x, const std::vector<at::Tensor>& w,
                            Recompute recompute) {
    const Block& block = GetParam();
    ForwardContext context{.training = true, .recompute = recompute};
    Attention attention{.head_width = kHeadWidth};
    Norm norm{.gain = w[kGain]};
    Affine qkv{w[kQkv]}, up{w[kUp]};
    if (block.is_llama) {
      attention.queries_per_key = 2;
      attention.rope = RopeOptions{};
    } else {
      norm.bias = w[kBias];
      qkv.bias = w[kQkvBias];
      up.bias = w[kUpBias];
    }
    if (block.norms_heads) {
      attention.query_gain = w[kQueryGain];
      attention.key_gain = w[kKeyGain];
    }
    const at::Tensor y =
        residual_add(x, self_attention(x, norm, qkv, attention, {w[kOut]}, context));
    return residual_add(
        y, feed_forward(y, norm, up, block.is_llama ? Activation::kSwiglu : Activation::kGelu,
                        {w[kDown]}, recompute));
  }

  struct Run {
    std::vector<at::Tensor> results;  // the output, the input's gradient, those of weights
    std::int64_t saved_bytes = 0;
  };

  Run run(Recompute recompute, bool halves) {
    at::manual_seed(3);
    const std::vector<at::Tensor> w = weights();
    const at::Tensor x =
        at::randn({kSamples, kTokens, kWidth}).to(GetParam().dtype).requires_grad_(true);
    const at::Tensor dy = at::randn({kSamples, kTokens, kWidth}).to(GetParam().dtype);
    const AccountScope scope(account_);
    const std::int64_t before = account_.current_bytes();
    Run made;
    at::Tensor y = forward(x, w, recompute);
    made.saved_bytes = account_.current_bytes() - before - static_cast<std::int64_t>(y.nbytes());
    made.results.push_back(y.detach());
    torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(y)};
    y.reset();
    if (halves) {
      WeightHalf rest;
      made.results.push_back(run_input_half(roots, {dy}, std::vector{x}, rest)[0]);
      roots.clear();
      run_weight_half(std::move(rest));
    } else {
      torch::autograd::Engine::get_default_engine().execute(roots, {dy}, /*keep_graph=*/false,
                                                            /*create_graph=*/false,
                                                            /*accumulate_grad=*/true);
      made.results.push_back(x.grad());
    }
    for (const at::Tensor& weight : w) made.results.push_back(weight.grad());
    return made;
  }

  MemoryAccount account_{"block"};  // outlives every tensor of a test
};

TEST_P(RecomputeLevel, ChangesNoBit) {
  const Run reference = run(Recompute::kNone, /*halves=*/false);
  for (const Recompute recompute : kRecomputeLevels) {
    for (const bool halves : {false, true}) {
      SCOPED_TRACE(std::string(name_of(recompute)) + (halves ? ", halves" : ""));
      const Run made = run(recompute, halves);
      ASSERT_EQ(made.results.size(), reference.results.size());
      for (std::size_t i = 0; i < made.results.size(); ++i)
        EXPECT_TRUE(at::equal(made.results[i], reference.results[i])) << "result " << i;
    }
  }
}

// Numbers per token of width 32: queries, keys and values 96 or 64; attention 32; inside of the MLP
// 64, and 128 before a SwiGLU; norms 32 each.
TEST_P(RecomputeLevel, SavesFewerBytes) {
  const Block& block = GetParam();
  const auto bytes_of = [&](std::int64_t numbers) {
    return static_cast<double>(numbers * kSamples * kTokens) *
           static_cast<double>(c10::elementSize(block.dtype));
  };
  const std::int64_t qkv = block.is_llama ? 64 : 96, inside = block.is_llama ? 128 : 64;
  const auto saved = [&](Recompute recompute) {
    return static_cast<double>(run(recompute, false).saved_bytes);
  };
  const double none = saved(Recompute::kNone), cheap = saved(Recompute::kCheap);
  const double products = saved(Recompute::kProducts), attention = saved(Recompute::kAttention);
  EXPECT_NEAR(none - cheap, bytes_of(kInside + 2 * kWidth), 1024);
  EXPECT_NEAR(cheap - products, bytes_of(qkv + inside), 1024);
  // And one fp32 number per token and head.
  EXPECT_NEAR(products - attention, bytes_of(kWidth) + 4.0 * kSamples * kTokens * 4, 1024);
}

TEST_P(RecomputeLevel, FreesWhatItMadeAgain) {
  const AccountScope scope(account_);
  const std::vector<at::Tensor> w = weights();
  const at::Tensor x =
      at::randn({kSamples, kTokens, kWidth}).to(GetParam().dtype).requires_grad_(true);
  for (const Recompute recompute : {Recompute::kProducts, Recompute::kAttention}) {
    const std::int64_t before = account_.current_bytes();
    {
      const at::Tensor unused = forward(x, w, recompute);  // its graph has no backward
    }
    EXPECT_EQ(account_.current_bytes(), before);
    const at::Tensor y = forward(x, w, recompute);
    y.backward(at::ones_like(y));
    x.mutable_grad().reset();
    // The graph's root holds all nodes, but none of their tensors.
    EXPECT_LE(account_.current_bytes(), before + static_cast<std::int64_t>(y.nbytes()) + 512);
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, RecomputeLevel,
                         testing::Values(Block{}, Block{.is_llama = true},
                                         Block{.is_llama = true, .norms_heads = true},
                                         Block{.dtype = at::kBFloat16},
                                         Block{.is_llama = true, .dtype = at::kHalf}),
                         [](const auto& info) {
                           return std::string(info.param.is_llama ? "Llama" : "Gpt") +
                                  (info.param.norms_heads ? "Normed" : "") +
                                  c10::toString(info.param.dtype);
                         });

}  // namespace
}  // namespace strata
