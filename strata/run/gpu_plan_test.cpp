// Tests plans for a GPU that this machine lacks: their predictions for known models, against closed
// forms of launches, operations and bytes. Not compared with a running GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/plan/text/plan_text.h"
#include "strata/run/plan_advice.h"
#include "strata/run/planned_run.h"
#include "strata/run/recipe_file.h"
#include "strata/run/recipe_machine.h"
#include "strata/run/resolved_run.h"

namespace strata {
namespace {

constexpr int kTokens = 1024, kVocab = 50304;

Recipe recipe_of(const std::string& more) {
  const std::string text =
      "model: {kind: gpt, layers: 12, width: 768, heads: 12, context: 1024, vocab: 50304}\n"
      "train: {mini_batch: 1, micro_batch: 1, precision: bf16}\n"
      "memory: {recompute: none}\n"
      "data: {train: none.txt, tokenizer: bytes}\n";
  std::vector<std::string> overrides;
  for (std::size_t at = 0; at < more.size();) {
    const std::size_t end = std::min(more.find(' ', at), more.size());
    overrides.push_back(more.substr(at, end - at));
    at = end + 1;
  }
  return parse_recipe(text, "test", overrides);
}

Plan plan_of(const std::string& more, const char* machine = "h100") {
  const MachineProfile profile = find_machine(machine);
  return plan_run_elsewhere(resolve(recipe_of(more), profile)).plan;
}

// The reserve of the system and the process is not available to the model; a recipe's own budget
// is.
TEST(GpuPlan, ReservesHostMemoryOfSystemAndProcess) {
  MachineProfile machine = parse_machine("host: {bytes: 90GB}", "m");
  const Recipe recipe = recipe_of("");
  EXPECT_EQ(on_machine(recipe, machine).memory.host.count,
            90'000'000'000 - (std::int64_t{6} << 30));
  machine.host.reserve.count = 10'000'000'000;
  EXPECT_EQ(on_machine(recipe, machine).memory.host.count, 80'000'000'000);
  EXPECT_EQ(on_machine(recipe_of("memory.host=85GB"), machine).memory.host.count, 85'000'000'000);
  machine.host.reserve = machine.host.bytes;
  try {
    on_machine(recipe, machine);
    FAIL() << "nothing is left for the model";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "host.reserve");
  }
}

double seconds(const Plan& plan) { return plan.simulation.step_seconds; }

// GPT-2 124M, one sample per step: 12 blocks, an embedding and a head are 12 x 46 + 2 x 17 kernels,
// whose launches take the host longer than the device needs to run them; updates are bound by the
// device's memory.
TEST(GpuPlan, PredictsGainOfRecordingFromLaunches) {
  const Plan performed = plan_of("train.graph=off"), recorded = plan_of("train.graph=on");
  double work = 0, updates = 0, first = 0;
  for (const LayerCost& layer : performed.costs.layers) {
    work += layer.forward_seconds + layer.backward_seconds;
    updates += layer.update_seconds;
    first += layer.backward_seconds;
  }
  constexpr int kKernels = 12 * (10 + 36) + 2 * (3 + 14);
  ASSERT_EQ(performed.simulation.ranks[0].launches, kKernels + 14 * kUpdateLaunches);
  const double host = 7e-6 * kKernels;
  ASSERT_GT(host, work);
  const double last =
      first / (12 * 36 + 2 * 14);  // the last kernel of backward, which are all equal
  EXPECT_NEAR(seconds(performed), host + std::max(last, 7e-6) + updates, 1e-9);
  EXPECT_NEAR(seconds(recorded), 10e-6 + work + updates, 1e-9);
  EXPECT_GE(seconds(performed) / seconds(recorded), 1.3);
  EXPECT_EQ(recorded.simulation.ranks[0].launches, 0);
  // From 6.0 µs per launch on it is 1.3 times as fast.
  EXPECT_NEAR((1.3 * seconds(recorded) - updates) / kKernels, 6.0e-6, 0.1e-6);
}

// The recipe's budget covers its own tensors; only a plan of the whole device counts the driver's
// memory.
TEST(GpuPlan, CountsDriverOnlyForWholeDevice) {
  const auto context = [](const std::string& more) {
    return plan_of(more).ledger[0].at_peak[ByteKind::kContext];
  };
  EXPECT_EQ(context("memory.device=0"), std::int64_t{512} << 20);
  EXPECT_EQ(context("memory.device=40GiB"), 0);
  const std::int64_t all = find_machine("h100").device.bytes.count;
  EXPECT_EQ(context("memory.device=" + std::to_string(all - (512 << 20))), 0);
  EXPECT_EQ(context("memory.device=" + std::to_string(all)), std::int64_t{512} << 20);
}

TEST(GpuPlan, CountsParametersOfAllSlices) {
  constexpr double kWidth = 768, kBlock = 12 * kWidth * kWidth + 13 * kWidth;
  const MachineProfile machine = find_machine("h100");
  std::vector<double> ends;
  for (const char* tp : {"mesh.tp=1", "mesh.tp=4"}) {
    const TierDepth depth = largest_depths(on_machine(recipe_of(tp), machine), machine).front();
    EXPECT_GT(depth.blocks, 12);
    ends.push_back(depth.parameters - depth.blocks * kBlock);
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_GT(ends[0], kVocab * kWidth);
  EXPECT_LT(ends[0], 2 * kVocab * kWidth + 1e7);
}

TEST(Estimates, NameTheirRates) {
  const Recipe cpu = recipe_of("mesh.device=cpu"), gpu = recipe_of("mesh.device=cuda");
  MachineProfile measured;
  measured.device.fp32 = measured.device.bf16 = 3e12;
  EXPECT_EQ(estimate_text(cpu, {}),
            "seconds    from 50 GFLOP/s of bf16 products, assumed: strata doctor measures this "
            "machine's\n");
  EXPECT_NE(estimate_text(gpu, {}).find("--machine h100"), std::string::npos);
  measured.device.kind = MachineKind::kCuda;
  EXPECT_EQ(estimate_text(gpu, measured),
            "seconds    from 3 TFLOP/s of bf16 products, as strata doctor has measured here\n");
}

TEST(GpuPlan, DoesNotRecordOnFullDevice) {
  const std::string large = "train.mini_batch=32 train.micro_batch=32 train.graph=";
  const double performed = seconds(plan_of(large + "off")),
               recorded = seconds(plan_of(large + "on"));
  EXPECT_NEAR(performed, recorded, 1e-4 * recorded);
}

// Operations of a training step: 6 per token and weight of a product, and causal attention.
// Computed by hand for 124M: 12 x 12 x 768² + 50304 x 768 weights, 6 x 12 x 768 x 1024 of
// attention.
TEST(GpuPlan, CountsModelOperationsAsPublished) {
  const Plan plan = plan_of("train.mini_batch=32 train.micro_batch=32 train.graph=on");
  const double flops = 6.0 * (12.0 * 12 * 768 * 768 + 50304.0 * 768) + 6.0 * 12 * 768 * kTokens;
  EXPECT_NEAR(flops_utilisation(plan), flops * 32 * kTokens / (989e12 * seconds(plan)), 1e-9);
  EXPECT_EQ(step_amount(plan).count, 32 * kTokens);
}

// Published speeds, per GPU of eight H100s. A plan assumes our operators, of which llm.c has fused
// some, and counts no gaps.
TEST(GpuPlan, IsCloseToPublishedSpeeds) {
  struct Published {
    const char* model;
    double tokens_per_second;
  };
  const Published all[] = {
      // llm.c: 139 ms for 524,288 tokens on 8 GPUs
      {"train.mini_batch=64 train.micro_batch=64", 471e3},
      // llm.c: 2.80 s for 1,048,576 tokens on 8 GPUs
      {"model.layers=48 model.width=1600 model.heads=25 train.mini_batch=64 train.micro_batch=8",
       46.8e3},
      // llm-foundry, MPT-3B with FSDP
      {"model.layers=32 model.width=2560 model.heads=20 model.context=2048 train.mini_batch=64 "
       "train.micro_batch=4 mesh.dp=8 mesh.zero=3 memory.recompute=cheap",
       27.0e3},
  };
  for (const Published& published : all) {
    const Plan plan = plan_of(published.model);
    const double rate =
        step_amount(plan).count / seconds(plan) / plan.decisions().mesh[Axis::kData];
    EXPECT_GT(rate, 0.9 * published.tokens_per_second) << published.model;
    EXPECT_LT(rate, 1.3 * published.tokens_per_second) << published.model;
  }
}

// A GPU's chunks of the head are 8,192 rows of logits in 16 bit and one fp64 loss per row.
TEST(GpuPlan, CountsLogitsOfGpuChunks) {
  for (const int samples : {1, 32}) {
    const std::string count = std::to_string(samples);
    const Plan plan = plan_of("train.mini_batch=" + count + " train.micro_batch=" + count);
    const std::int64_t rows = std::min(samples * kTokens, 8192);
    EXPECT_EQ(plan.costs.layers.back().backward_transient_bytes,
              rows * (std::int64_t{kVocab} * 2 + 8));
  }
}

// With many layers the peak is not at the head's logits but in a block's backward: attention's fp32
// sums, the library's three gradients and the packed ones, in addition to what is saved, minus the
// MLP's freed part.
TEST(GpuPlan, CountsSumsOfAttention) {
  const Plan plan = plan_of("");
  const std::int64_t values = std::int64_t{kTokens} * 768 * 2;
  EXPECT_EQ(plan.costs.layers[1].backward_transient_bytes,
            // 11 groups of 12 fill 132 multiprocessors
            11 * std::int64_t{12} * kTokens * 64 * 4 + 2 * values);
}

// A forward needs the logits of a chunk temporarily, and the values that wait for their turn.
TEST(GpuPlan, AddsPoolOfValidationToThatOfTraining) {
  const auto pools = [](const std::string& more) {
    return plan_of("train.graph=on " + more).ledger[0].at_peak[ByteKind::kPools];
  };
  EXPECT_EQ(pools("data.validation_fraction=0"), 0);
  const std::int64_t logits = std::int64_t{kTokens} * (kVocab * 2 + 8);
  EXPECT_GE(pools(""), logits);
  EXPECT_LT(pools(""), 2 * logits);
  EXPECT_EQ(pools("train.mini_batch=3 train.validation_samples=7"),
            2 * pools("train.mini_batch=3 train.validation_samples=6"));
}

// Two machines of eight GPUs, one process each: sums of replicas and of the norm span all ranks.
TEST(GpuPlan, CountsNcclBuffersBetweenMachines) {
  const Plan inside = plan_of("train.mini_batch=8 mesh.dp=8");
  const Plan across = plan_of("train.mini_batch=16 mesh.dp=16");
  EXPECT_EQ(inside.ledger[0].at_peak[ByteKind::kCommunicators], 0);
  const std::int64_t bytes = std::int64_t{15 * 2 * 12} << 20;
  EXPECT_EQ(across.ledger[0].at_peak[ByteKind::kCommunicators], bytes);
  EXPECT_EQ(across.ledger[0].at_peak.total(), across.ledger[0].peak_bytes);
  EXPECT_LT(across.ledger[0].at_peak.charged(), across.ledger[0].peak_bytes - bytes);
  EXPECT_NE(plan_text(across).find("NCCL       about 360.00 MiB on every rank"), std::string::npos);
  EXPECT_EQ(plan_text(inside).find("NCCL"), std::string::npos);
}

TEST(GpuPlan, SearchesMeshWithRatesOfMachine) {
  const MachineProfile h100 = find_machine("h100");
  Recipe recipe = parse_recipe(
      "model: {kind: gpt, layers: 4, width: 256, heads: 4, context: 128}\n"
      "train: {mini_batch: 64, micro_batch: 8, precision: bf16}\n"
      "mesh: {auto: true}\n"
      "data: {train: none.txt, tokenizer: bytes}\n",
      "test", {});
  const MeshSearch search = *resolve(std::move(recipe), h100).search;
  EXPECT_EQ(search.best().axes.size(), 8);              // the GPUs of a machine
  EXPECT_LT(search.trials.front().step_seconds, 0.05);  // not at a processor's rates
}

TEST(GpuPlan, IsForCpuIfRecipeRequestsCpu) {
  const Plan plan = plan_of("mesh.device=cpu");
  EXPECT_EQ(plan.costs.launch.kernel, 0);
  EXPECT_EQ(plan.ledger[0].at_peak[ByteKind::kContext], 0);
  EXPECT_EQ(flops_utilisation(plan), 0);
}

}  // namespace
}  // namespace strata
