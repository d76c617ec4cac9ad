#include "strata/claim/mesh_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/claim/claim_machines.h"

namespace strata {
namespace {

DecoderTraining training_of(std::int64_t samples,
                            DecoderKernels kernels = DecoderKernels::kStrata) {
  return {.shape = {.layers = 32, .width = 8192, .heads = 64},
          .samples = samples,
          .machine = claim_machine("a100-selene"),
          .kernels = kernels};
}

// The estimate may order candidates and must not promise too few bytes.
TEST(MeshEstimate, IsNearThePlannersSecondsAndBytes) {
  int compared = 0;
  for (const DecoderKernels kernels : {DecoderKernels::kPublished, DecoderKernels::kStrata})
    for (const bool full : {true, false})
      for (const int pipeline : {1, 4, 16})
        for (const int replicas : {1, 4})
          for (const int zero : {0, 1})
            for (const int stages : {1, 2}) {
              if ((pipeline == 1 && stages > 1) || (replicas == 1 && zero > 0)) continue;
              const DecoderTraining training = training_of(64 * replicas, kernels);
              const DecoderMesh mesh{.axes = {{Axis::kPipeline, pipeline},
                                              {Axis::kData, replicas},
                                              {Axis::kTensor, 8}},
                                     .virtual_stages = stages,
                                     .zero = zero,
                                     .recomputes_layers = full};
              SCOPED_TRACE(mesh_text(mesh) + ", " + schedule_text(mesh));
              const MeshEstimate estimated = estimate(training, mesh);
              const Plan plan = planned(training, mesh);
              const auto bytes = static_cast<double>(peak_bytes(plan.ledger));
              EXPECT_NEAR(estimated.step_seconds, plan.simulation.step_seconds,
                          0.04 * plan.simulation.step_seconds);
              EXPECT_GE(estimated.bytes, 0.999 * bytes);
              EXPECT_LE(estimated.bytes, 1.04 * bytes);
              ++compared;
            }
  EXPECT_EQ(compared, 60);
}

TEST(MeshEstimate, OrdersCandidatesSoThatTheSearchFindsTheFastest) {
  const DecoderTraining training{.shape = {.layers = 12, .width = 4096, .heads = 32},
                                 .samples = 32,
                                 .machine = claim_machine("a100-selene")};
  constexpr int kRanks = 16;
  const DecoderPlan found = search_meshes(training, kRanks);
  double fastest = 1e9;
  int tried = 0;
  for (const MeshEstimate& candidate : estimate_meshes(training, kRanks)) {
    const Plan plan = planned(training, candidate.mesh);
    ++tried;
    if (peak_bytes(plan.ledger) <= training.machine.device.bytes.count)
      fastest = std::min(fastest, plan.simulation.step_seconds);
  }
  EXPECT_EQ(tried, found.candidates);
  EXPECT_GT(tried, 100);
  EXPECT_LE(found.plan.simulation.step_seconds, 1.005 * fastest);
}

TEST(MeshSearchOfThousands, FindsAMeshOf10000RanksThatFits) {
  const DecoderTraining training{.shape = {.layers = 128, .width = 25600, .heads = 160},
                                 .samples = 10000,
                                 .machine = claim_machine("a100-selene")};
  const DecoderPlan found = search_meshes(training, 10000);
  EXPECT_GT(found.candidates, 5000);
  EXPECT_EQ(found.mesh.axes.size(), 10000);
  EXPECT_EQ(found.plan.decisions().mesh, found.mesh.axes);
  EXPECT_LE(peak_bytes(found.plan.ledger), training.machine.device.bytes.count);
  EXPECT_EQ(found.mesh.micro_batches(training.samples) * found.mesh.axes[Axis::kData] *
                found.mesh.micro_batch,
            training.samples);
  // Products are 192 of the data sheet's 312 TFLOP/s.
  EXPECT_GT(flops_utilisation(found.plan), 0.4);
  EXPECT_LT(flops_utilisation(found.plan), 192.0 / 312);
}

TEST(MeshSearchOfThousands, RefusesAModelThatDoesNotFit) {
  DecoderTraining training = training_of(64);
  training.machine.device.bytes = {std::int64_t{1} << 30};
  try {
    search_meshes(training, 8);
    FAIL() << "a device of 1 GiB cannot hold it";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "claim.mesh");
    EXPECT_NE(error.text().got.find("tp 8, zero 0"), std::string::npos) << error.what();
  }
}

// With equal stages and slow messages every rank waits for two of them in each micro-batch.
TEST(MeshEstimate, CountsStallsOnMessages) {
  DecoderTraining training = training_of(64);
  training.shape.vocabulary = 64;
  training.machine.network.bandwidth = {2'500'000'000};
  for (const bool full : {true, false}) {
    const DecoderMesh mesh{.axes = {{Axis::kPipeline, 8}, {Axis::kTensor, 8}},
                           .recomputes_layers = full};
    const double seconds = planned(training, mesh).simulation.step_seconds;
    EXPECT_NEAR(estimate(training, mesh).step_seconds, seconds, 0.02 * seconds) << full;
    DecoderTraining fast = training;
    fast.machine.network.bandwidth = {2'500'000'000'000};
    EXPECT_GT(seconds, 1.1 * planned(fast, mesh).simulation.step_seconds) << full;
  }
}

// Messages of one part each are shorter than whole ones.
TEST(MeshEstimate, ScatteredMessagesShortenAStep) {
  DecoderTraining training = training_of(64, DecoderKernels::kPublished);
  const DecoderMesh mesh{.axes = {{Axis::kPipeline, 16}, {Axis::kTensor, 8}},
                         .recomputes_layers = true};
  const double whole = planned(training, mesh).simulation.step_seconds;
  training.scatters_messages = true;
  const double scattered = planned(training, mesh).simulation.step_seconds;
  EXPECT_LT(scattered, whole);
  EXPECT_GT(scattered, 0.8 * whole);
}

TEST(EvenPartition, GivesEveryStageItsPartOfTheBlocks) {
  const Partition partition = even_partition({.layers = 10}, 4);
  EXPECT_EQ(partition.bounds, (std::vector<int>{0, 3, 6, 8, 12}));
  EXPECT_EQ(even_partition({.layers = 10}, 1).bounds, (std::vector<int>{0, 12}));
}

}  // namespace
}  // namespace strata
