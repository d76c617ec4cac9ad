// What a Llama's block says of its bytes against what it allocates: plans are made of these.
#include <gtest/gtest.h>

#include "strata/comm/thread_ranks.h"
#include "strata/models/llama.h"
#include "strata/nn/initialise.h"

namespace strata {
namespace {

struct Kind {
  const char* name;
  bool qk_norm;
  std::int64_t mlp_width;
};

class LlamaBytes : public testing::TestWithParam<Kind> {};

std::vector<at::Tensor> leaves(const LayerLayout& layout) {
  std::vector<at::Tensor> weights;
  for (const WeightSpec& spec : layout.specs) {
    const at::Tensor weight = at::zeros(spec.shape);
    initialise(weight, spec, "block", 1);
    weights.push_back(weight.requires_grad_(true));
    weights.back().mutable_grad() = at::zeros(spec.shape);
  }
  return weights;
}

// Of the larger; blocks of the allocator's and tables of angles are small change.
void expect_near(std::int64_t said, std::int64_t measured, std::int64_t whole,
                 const std::string& what) {
  EXPECT_NEAR(static_cast<double>(said), static_cast<double>(measured),
              0.03 * static_cast<double>(whole))
      << what;
}

TEST_P(LlamaBytes, AreWhatABlockAllocates) {
  const Kind kind = GetParam();
  const Sequence model = make_llama({.kind = "llama",
                                     .layers = 1,
                                     .width = 256,
                                     .heads = 8,
                                     .context = 128,
                                     .kv_heads = 4,
                                     .mlp_width = kind.mlp_width,
                                     .qk_norm = kind.qk_norm});
  const Layer& block = model.layer(1);
  run_thread_ranks({}, [&](Group&, MemoryAccount& account) {
    const std::vector<at::Tensor> weights = leaves(model.layout(1));
    const at::Tensor x = at::randn({8, 128, 256}).requires_grad_(true);
    const std::vector<TensorSpec> inputs = {{.shape = {8, 128, 256}}};
    for (const bool keep : {false, true}) {
      x.mutable_grad().reset();
      const LayerBytes said = block.bytes(inputs, keep);
      const std::int64_t before = account.current_bytes(), value = inputs[0].bytes();
      account.reset_peak();
      const at::Tensor y =
          block.forward({.training = true, .keep_intermediates = keep}, weights, std::vector{x})[0];
      const std::int64_t saved = account.current_bytes() - before - value;
      const std::int64_t forward = account.peak_bytes() - before - value - saved;
      const at::Tensor dy = at::randn({8, 128, 256});
      account.reset_peak();
      y.backward(dy);
      // Beside the weights: the block's output, its gradient, the input's gradient.
      const std::int64_t backward = account.peak_bytes() - before - saved - 3 * value;
      expect_near(said.saved, saved, saved, "saved");
      expect_near(said.forward_transient, forward, saved, "forward");
      expect_near(said.backward_transient, backward, saved, "backward");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, LlamaBytes,
                         testing::Values(Kind{"Llama", false, 704}, Kind{"SmallMlp", false, 128},
                                         Kind{"Qwen3", true, 704}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
