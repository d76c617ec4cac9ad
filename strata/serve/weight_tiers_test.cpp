// Decodes with weights on the host and on the disk: the same bits as with weights on the device,
// for every mesh, type of weights and window.
#include "strata/serve/weight_tiers.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/model.h"
#include "strata/serve/decoder.h"
#include "strata/serve/example_weights_test.h"

namespace strata {
namespace {

constexpr int kBlocks = 4;
constexpr PageRoom kRoom{.page_tokens = 8, .pages = 12};

DecoderOptions model_of(DecoderKind kind) {
  DecoderOptions options{
      .kind = kind, .layers = kBlocks, .width = 64, .heads = 4, .vocab = 60, .context = 96};
  if (kind == DecoderKind::kLlama) {
    options.kv_heads = 2;
    options.mlp_width = 96;
    options.tie = false;
  }
  return options;
}

// By layer: embedding, blocks, head.
TierLayout layout(const std::vector<Tier>& weights, int window) {
  TierLayout tiers{.window = window};
  for (const Tier tier : weights)
    tiers.layers.push_back({.weights = tier, .gradients = tier, .states = tier});
  return tiers;
}

constexpr Tier kD = Tier::kDevice, kH = Tier::kHost, kF = Tier::kDisk;
const std::vector<std::vector<Tier>> kLayouts = {{kH, kH, kH, kH, kH, kH},
                                                 {kF, kF, kF, kF, kF, kF},
                                                 {kD, kH, kD, kH, kD, kD},
                                                 {kH, kH, kF, kD, kF, kH}};

// Prompts, single tokens, and a text that continues after another one has ended.
std::vector<Pass> passes() {
  const auto tokens = [](std::int64_t count, std::int64_t first) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) all[i] = (first + i * i * 7) % 60;
    return all;
  };
  const std::vector<std::int32_t> one{0, 2, 4, 6}, other{1, 3, 5};
  return {{{.tokens = tokens(13, 1), .position = 0, .pages = one, .logits = 13}},
          {{.tokens = tokens(1, 5), .position = 13, .pages = one, .logits = 1},
           {.tokens = tokens(9, 8), .position = 0, .pages = other, .logits = 2}},
          {{.tokens = tokens(1, 9), .position = 14, .pages = one, .logits = 1},
           {.tokens = tokens(1, 3), .position = 9, .pages = other, .logits = 1}},
          {{.tokens = tokens(8, 2), .position = 10, .pages = other, .logits = 1}}};
}

// The logits of each pass, on the rank that decides.
std::vector<at::Tensor> decode(const Sequential& model, const Mesh& mesh, const TierLayout& tiers,
                               const std::string& disk) {
  std::vector<at::Tensor> logits;
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, decoder_steps(model, mesh, tiers), kRoom, world, {.disk = disk});
    // Weights that the passes of an earlier fill have fetched are out of date.
    fill_with_examples(decoder, 0.1);
    decoder.forward(passes()[0]);
    fill_with_examples(decoder);
    for (const Pass& pass : passes()) {
      const at::Tensor made = decoder.forward(pass).logits;
      if (decoder.decides()) logits.push_back(made.clone());
    }
  });
  return logits;
}

class WeightTiersTest
    : public testing::TestWithParam<std::tuple<DecoderKind, Mesh, at::ScalarType>> {};

TEST_P(WeightTiersTest, LogitsDoNotDependOnWhereWeightsLive) {
  const auto [kind, mesh, precision] = GetParam();
  const Sequential model =
      make_model(model_of(kind), DecoderOutput::kLogits, {.ranks = mesh[Axis::kTensor]}, precision);
  ASSERT_EQ(model.num_layers(), kBlocks + 2);
  const std::vector<at::Tensor> expected = decode(model, mesh, {}, "");
  ASSERT_EQ(expected.size(), passes().size());
  const DiskScratch folder;
  int run = 0;
  for (const std::vector<Tier>& weights : kLayouts) {
    for (const int window : {1, 2, kBlocks + 2}) {
      SCOPED_TRACE(testing::Message() << "layout " << run << ", window " << window);
      const std::vector<at::Tensor> logits =
          decode(model, mesh, layout(weights, window), folder.path("run" + std::to_string(run++)));
      ASSERT_EQ(logits.size(), expected.size());
      for (std::size_t pass = 0; pass < logits.size(); ++pass)
        EXPECT_TRUE(logits[pass].equal(expected[pass])) << "pass " << pass;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, WeightTiersTest,
    testing::Combine(testing::Values(DecoderKind::kGpt, DecoderKind::kLlama),
                     testing::Values(Mesh{}, Mesh{{Axis::kTensor, 2}}, Mesh{{Axis::kPipeline, 2}},
                                     Mesh{{Axis::kPipeline, 2}, {Axis::kTensor, 2}}),
                     testing::Values(at::kFloat, at::kBFloat16)));

// What lives off the device is not in its account, and the files are as large as the weights.
TEST(WeightTiersBytes, WeightsOffTheDeviceAreChargedToTheHost) {
  const Sequential model = make_model(model_of(DecoderKind::kGpt), DecoderOutput::kLogits);
  const auto resident = [&](const std::vector<Tier>& weights, const std::string& disk) {
    std::int64_t bytes = 0;
    run_thread_ranks({}, [&](Group& world, MemoryAccount& account) {
      const TierLayout tiers = weights.empty() ? TierLayout{} : layout(weights, 2);
      Decoder decoder(model, decoder_steps(model, Mesh{}, tiers), kRoom, world, {.disk = disk});
      fill_with_examples(decoder);
      bytes = account.current_bytes();
    });
    return bytes;
  };
  std::int64_t weights = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    weights += model.layout(layer).own_numel * 4;
  const DiskScratch folder;
  const std::int64_t all = resident({}, "");
  EXPECT_EQ(all - resident(kLayouts[0], ""), weights);
  EXPECT_EQ(all - resident(kLayouts[1], folder.path("disk")), weights);
}

TEST(WeightTiersBytes, RefusesFolderInUse) {
  const Sequential model = make_model(model_of(DecoderKind::kGpt), DecoderOutput::kLogits);
  const DiskScratch folder;
  run_thread_ranks({}, [&](Group& world, MemoryAccount&) {
    const StepPlan steps = decoder_steps(model, Mesh{}, layout(kLayouts[1], 2));
    const Decoder first(model, steps, kRoom, world, {.disk = folder.path("disk")});
    try {
      const Decoder second(model, steps, kRoom, world, {.disk = folder.path("disk")});
      FAIL();
    } catch (const UserError& error) {
      EXPECT_NE(error.text().what.find("another run"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace strata
