// Compares the decoder that claims plan (strata/claim/decoder_costs.h), which needs no torch, with
// the costs of real layers and with the bytes that real layers allocate.
#include <gtest/gtest.h>

#include "strata/claim/claim_machines.h"
#include "strata/claim/decoder_costs.h"
#include "strata/claim/mesh_estimate.h"
#include "strata/models/model.h"
#include "strata/nn/graph/measured_bytes.h"
#include "strata/plan/ledger/ledger.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/run/planned_run.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resolved_run.h"

namespace strata {
namespace {

constexpr DecoderShape kDecoder{
    .layers = 4, .width = 1024, .heads = 16, .vocabulary = 8192, .tokens = 512};

Plan plan_of_recipe(Recompute level, int ranks, bool sequence_parallel) {
  const Recipe recipe = parse_recipe(
      "model: {kind: gpt, layers: 4, width: 1024, heads: 16, context: 512, vocab: 8192}\n"
      "train: {mini_batch: 2, micro_batch: 2, precision: bf16, graph: off}\n"
      "mesh: {tp: " +
          std::to_string(ranks) + ", sequence_parallel: " + (sequence_parallel ? "true" : "false") +
          "}\n"
          "memory: {recompute: " +
          name_of(level) +
          "}\n"
          "data: {train: none.txt, tokenizer: bytes}\n",
      "test", {});
  return plan_run_elsewhere(resolve(recipe, claim_machine("a100-selene"))).plan;
}

TEST(DecoderClaim, CostsAreThoseOfTheLayers) {
  for (const Recompute level : kRecomputeLevels)
    for (const auto& [ranks, sequence] : {std::pair{1, false}, {2, false}, {2, true}}) {
      SCOPED_TRACE(std::string(name_of(level)) + ", tp " + std::to_string(ranks) +
                   (sequence ? ", sequence parallel" : ""));
      const CostTable real = plan_of_recipe(level, ranks, sequence).costs;
      const DecoderModel model = decoder_model(
          kDecoder,
          {.split = {.samples = 2, .tensor_ranks = ranks, .sequence_parallel = sequence},
           .recompute = level},
          precision_convention("split"), claim_machine("a100-selene"));
      ASSERT_EQ(real.layers.size(), model.costs.layers.size());
      const Mesh mesh{{Axis::kTensor, ranks}};
      const CostTable costs = with_mesh_seconds(
          model.costs,
          {.axes = mesh, .rates = gpu_axis_rates(claim_machine("a100-selene"), mesh, {})});
      const LayerCost &block = costs.layers[1], &layer = real.layers[1];
      EXPECT_EQ(block.saved_bytes, layer.saved_bytes);
      EXPECT_GE(block.forward_transient_bytes, layer.forward_transient_bytes);
      EXPECT_GE(block.backward_transient_bytes, layer.backward_transient_bytes);
      EXPECT_LE(block.backward_transient_bytes, 1.25 * layer.backward_transient_bytes);
      EXPECT_EQ(block.no_grad_transient_bytes, layer.no_grad_transient_bytes);
      EXPECT_EQ(model.costs.values[1].bytes, real.values[1].bytes);
      EXPECT_DOUBLE_EQ(block.forward_flops, layer.forward_flops);
      EXPECT_NEAR(block.forward_seconds, layer.forward_seconds, 0.02 * layer.forward_seconds);
      EXPECT_NEAR(block.backward_seconds, layer.backward_seconds, 0.02 * layer.backward_seconds);
      EXPECT_EQ(block.work.forward_sum_bytes, layer.work.forward_sum_bytes);
      EXPECT_EQ(block.work.attention.heads, layer.work.attention.heads);
      EXPECT_EQ(block.work.forward_kernels, layer.work.forward_kernels);
      EXPECT_EQ(block.work.backward_kernels, layer.work.backward_kernels);
      // Biases and norms that every rank holds, and buffers aligned to 64 bytes.
      EXPECT_NEAR(block.weight_bytes, layer.weight_bytes, 0.002 * layer.weight_bytes);
      EXPECT_NEAR(block.state_bytes, layer.state_bytes, 0.002 * layer.state_bytes);
      EXPECT_NEAR(model.costs.layers.front().weight_bytes, real.layers.front().weight_bytes,
                  0.002 * real.layers.front().weight_bytes);
    }
}

// What claims plan for a mesh is what `strata plan --machine` plans for the recipe.
TEST(DecoderClaim, PlansAreThoseOfTheRecipe) {
  for (const Recompute level : kRecomputeLevels)
    for (const auto& [ranks, sequence] : {std::pair{1, false}, {2, false}, {2, true}}) {
      SCOPED_TRACE(std::string(name_of(level)) + ", tp " + std::to_string(ranks) +
                   (sequence ? ", sequence parallel" : ""));
      const Plan real = plan_of_recipe(level, ranks, sequence);
      const Plan claimed =
          planned({.shape = kDecoder, .samples = 2, .machine = claim_machine("a100-selene")},
                  {.axes = {{Axis::kTensor, ranks}},
                   .micro_batch = 2,
                   .sequence_parallel = sequence,
                   .recompute = level});
      const auto bytes = static_cast<double>(peak_bytes(real.ledger));
      EXPECT_NEAR(static_cast<double>(peak_bytes(claimed.ledger)), bytes, 0.001 * bytes);
      EXPECT_NEAR(claimed.simulation.step_seconds, real.simulation.step_seconds,
                  0.02 * real.simulation.step_seconds);
    }
}

// Activations of the claims against the bytes that a layer allocates, in fp32 on this processor.
TEST(DecoderClaim, ActivationsAreTheBytesThatALayerAllocates) {
  const Sequential model = make_model({.layers = 1, .width = 256, .heads = 8, .context = 128});
  const std::vector<TensorSpec> batch(2, {.shape = {8, 128}, .dtype = at::kLong});
  const std::vector<TensorSpec> inputs = model.input_specs(1, batch, model.value_specs(batch));
  constexpr DecoderShape kSmall{.layers = 1, .width = 256, .heads = 8, .tokens = 128};
  constexpr LayerSplit kSplit{.samples = 8, .element_bytes = 4};
  const double input = strata_activation_bytes(kSmall, kSplit, Recompute::kNone, /*whole=*/true);
  EXPECT_EQ(input, static_cast<double>(inputs[0].bytes()));
  for (const Recompute level : kRecomputeLevels) {
    const auto measured = static_cast<double>(measured_bytes(model.layer(1), inputs, level).saved);
    EXPECT_NEAR(strata_activation_bytes(kSmall, kSplit, level) - input, measured, 0.02 * measured)
        << name_of(level);
  }
}

// The published formula is above what Strata's layers keep, by masks and scores.
TEST(DecoderClaim, PublishedActivationsAreAboveMeasuredOnes) {
  constexpr LayerSplit kSplit{.samples = 2};
  EXPECT_GT(published_activation_bytes(kDecoder, kSplit, PublishedRecompute::kSelective),
            strata_activation_bytes(kDecoder, kSplit, Recompute::kNone));
}

}  // namespace
}  // namespace strata
