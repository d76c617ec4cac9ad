// DeepSpeed's trillion parameters. The shape of the model is published; the vocabulary is
// Megatron-LM's.
#include <string>

#include "strata/base/units.h"
#include "strata/claim/claims.h"
#include "strata/claim/decoder_plans.h"
#include "strata/claim/equal_pipeline.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

constexpr DecoderShape kTrillion{.layers = 298, .width = 17408, .heads = 128};
constexpr int kDeepSpeedSlices = 16, kDeepSpeedStages = 50, kV100s = 800;

DecoderTraining on_v100(DecoderKernels kernels, std::string convention) {
  return {.shape = kTrillion,
          .samples = 2048,
          .machine = claim_machine("v100-dgx2-cluster"),
          .kernels = kernels,
          .convention = std::move(convention)};
}

DecoderMesh published_mesh() {
  // Activations are divided among tensor-parallel ranks, as DeepSpeed partitions its checkpoints.
  return {.axes = {{Axis::kPipeline, kDeepSpeedStages}, {Axis::kTensor, kDeepSpeedSlices}},
          .sequence_parallel = true,
          .recomputes_layers = true};
}

void add_sizes(Claim& claim) {
  const double parameters = parameters_of(kTrillion);
  claim.rows.push_back({.what = "parameters of 298 layers of width 17,408",
                        .unit = "T",
                        .decimals = 2,
                        .published = 1,
                        .reproduced = parameters / 1e12,
                        .tolerance = within(0.1)});
  claim.rows.push_back({.what = "parameters of one of 800 V100",
                        .unit = "G",
                        .published = 1.4,
                        .reproduced = parameters / kV100s / 1e9,
                        .tolerance = rounding(1)});
  const Plan plan = planned(on_v100(DecoderKernels::kPublished, "zero-paper"), published_mesh());
  const double room = 32.0 * (1 << 30);
  claim.rows.push_back({.what = "16 x 50 V100 of 32 GB that hold their part of the model",
                        .unit = "GPUs",
                        .decimals = 0,
                        .published = kV100s,
                        .reproduced = static_cast<double>(peak_bytes(plan.ledger)) <= room
                                          ? static_cast<double>(plan.decisions().mesh.size())
                                          : 0,
                        .tolerance = {}});
}

// "At least 400 A100 of 40 GB", and a plan for 4,096.
void add_a100(Claim& claim) {
  constexpr int kStages = 64, kRanks = 8;
  const ParameterBytes& bytes = precision_convention("zero-paper");
  claim.rows.push_back({.what = "A100 of 40 GB that the states of a trillion parameters fill",
                        .unit = "GPUs",
                        .decimals = 0,
                        .published = 400,
                        .reproduced = zero_bytes(1e12, bytes, 0, 1).total() / 40e9,
                        .tolerance = rounding(0)});
  constexpr double kGib = 1 << 30;
  claim.rows.push_back(
      {.what = "4,096 A100 as 8 tp x 64 pp x 8 dp: states of a rank",
       .unit = "GB",
       .decimals = 0,
       .published = 30,
       .reproduced = zero_bytes(1e12 / (kRanks * kStages), bytes, 0, 1).total() / kGib,
       .tolerance = within(0.05)});
  const int in_flight =
      in_flight_bound(ScheduleKind::k1f1b, {.ranks = kStages, .micro_batches = 8 * kStages}, 0);
  const double inputs = strata_activation_bytes(
      kTrillion, {.samples = 1, .tensor_ranks = kRanks, .sequence_parallel = true},
      Recompute::kCheap, /*whole=*/true);
  claim.rows.push_back(
      {.what = "the same: activations of a rank, every layer computed again",
       .unit = "GB",
       .published = 2.5,
       .reproduced = in_flight * inputs * static_cast<double>(kTrillion.layers) / kStages / kGib,
       .tolerance = within(0.1)});
}

void add_efficiency(Claim& claim) {
  for (const auto& [multiple, published] : {std::pair{4, 81.0}, std::pair{8, 90.0}}) {
    for (const int ranks : {8, 16, 64}) {
      claim.rows.push_back(
          {.what = std::to_string(ranks) + " stages, " + std::to_string(multiple) +
                   " micro-batches each: busy share",
           .unit = "%",
           .published = published,
           .reproduced =
               100 * (1 - bubble_rate({.ranks = ranks, .micro_batches = multiple * ranks})),
           .tolerance = {.absolute = 1.2}});
    }
  }
}

}  // namespace

Claim deepspeed_3d_claim() {
  Claim claim{
      .name = "deepspeed-3d",
      .system = "DeepSpeed",
      .statement =
          "A model of a trillion parameters trains on 800 V100 of 32 GB with 16 x 50 "
          "tensor-parallel and pipeline ranks, at 47 TFLOP/s each.",
      .source =
          "Microsoft Research blog, \"DeepSpeed: Extreme-scale model training for everyone\", "
          "September 2020",
      .method =
          "Counts of each layer; bytes by Strata's ledger for the published mesh with 16 "
          "bytes a parameter; efficiency by the simulated 1F1B.",
      .strata =
          "The fastest mesh of the same GPUs, with fp32 gradients: 18 bytes a parameter in fp16 on "
          "V100, 16 in bf16 on A100. "
          "The rate of products of a V100 is four fifths of the data sheet's; the published run "
          "reached less, so these seconds are a bound."};
  add_sizes(claim);
  add_a100(claim);
  add_efficiency(claim);
  claim.plans.push_back(
      strata_plan(on_v100(DecoderKernels::kStrata, "mixed"), kV100s, {.device = "V100"}));
  DecoderTraining a100 = on_v100(DecoderKernels::kStrata, "split");
  a100.machine = claim_machine("a100-selene");
  a100.samples = 4096;
  claim.plans.push_back(strata_plan(a100, 4096, {.device = "A100 of 80 GB"}));
  // The largest number of ranks that the search is tested with.
  a100.shape = {.layers = 128, .width = 25600, .heads = 160};
  a100.samples = 10000;
  claim.plans.push_back(strata_plan(a100, 10000, {.device = "A100 of 80 GB"}));
  return claim;
}

}  // namespace strata
