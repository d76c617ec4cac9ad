// DeepSpeed's trillion parameters on V100, and its plan for A100 of 40 GB. The shape of the model
// is published; the vocabulary is Megatron-LM's.
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
constexpr double kPublishedFlops = 47e12;  // a second and V100

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
}

// Steps of the published mesh. The seconds are those of the published rate, whose operations
// include the recompute. Returns the simulated seconds.
double add_steps(Claim& claim) {
  const DecoderTraining training = on_v100(DecoderKernels::kPublished, "zero-paper");
  const Plan plan = planned(training, published_mesh());
  const double seconds = plan.simulation.step_seconds;
  const double flops =
      step_flops(training.shape, static_cast<double>(training.samples), /*recomputes=*/true);
  claim.rows.push_back({.what = "TFLOP/s a V100, simulated step of 16 tp x 50 pp",
                        .unit = "TFLOP/s",
                        .decimals = 0,
                        .published = kPublishedFlops / 1e12,
                        .reproduced = flops / (seconds * kV100s) / 1e12,
                        .tolerance = within(0.15)});
  claim.rows.push_back({.what = "seconds of this step; published: at 47 TFLOP/s",
                        .unit = "s",
                        .decimals = 0,
                        .published = flops / (kPublishedFlops * kV100s),
                        .reproduced = seconds,
                        .tolerance = within(0.15)});
  const auto micro_batches = static_cast<double>(training.samples);
  claim.rows.push_back(
      {.what = "50 stages, 2,048 micro-batches: busy share; published: m / (m + p - 1)",
       .unit = "%",
       .published = 100 * micro_batches / (micro_batches + kDeepSpeedStages - 1),
       .reproduced = 100 * (1 - bubble_rate({.ranks = kDeepSpeedStages,
                                             .micro_batches = static_cast<int>(training.samples)})),
       .tolerance = {.absolute = 0.1}});
  claim.figures.push_back(
      {"published mesh of 800 V100: bytes of the fullest rank in Strata's ledger",
       format_double(static_cast<double>(peak_bytes(plan.ledger)) / 1e9, 1) + " of " +
           format_double(static_cast<double>(training.machine.device.bytes.count) / 1e9, 1) +
           " GB"});
  return seconds;
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
                        .tolerance = rounding(0),
                        .from_published = true});
  claim.rows.push_back(
      {.what = "4,096 A100 as 8 tp x 64 pp x 8 dp: states of a rank",
       .unit = "GB",
       .decimals = 0,
       .published = 30,
       .reproduced = zero_bytes(1e12 / (kRanks * kStages), bytes, 0, 1).total() / 1e9,
       .tolerance = within(0.05),
       .from_published = true});
  const int in_flight =
      in_flight_bound(ScheduleKind::k1f1b, {.ranks = kStages, .micro_batches = 8 * kStages}, 0);
  const double inputs = strata_activation_bytes(
      kTrillion, {.samples = 1, .tensor_ranks = kRanks, .sequence_parallel = true},
      Recompute::kCheap, /*whole=*/true);
  claim.rows.push_back(
      {.what = "the same: activations of a rank, every layer computed again",
       .unit = "GB",
       .published = 2.5,
       .reproduced = in_flight * inputs * static_cast<double>(kTrillion.layers) / kStages / 1e9,
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
          "V100, 16 in bf16 on A100. Products of a V100 run at 49 TFLOP/s, the most that DeepSpeed "
          "published of a whole step of another model."};
  add_sizes(claim);
  const double seconds = add_steps(claim);
  add_a100(claim);
  add_efficiency(claim);
  claim.plans.push_back(strata_plan(on_v100(DecoderKernels::kStrata, "mixed"), kV100s,
                                    {.device = "V100",
                                     .published_flops_a_second = kPublishedFlops,
                                     .recomputes = true,
                                     .simulated_seconds = seconds}));
  DecoderTraining a100 = on_v100(DecoderKernels::kStrata, "split");
  a100.machine = claim_machine("a100-dgx");
  a100.samples = 4096;
  claim.plans.push_back(strata_plan(a100, 4096, {.device = "A100 of 40 GB"}));
  return claim;
}

}  // namespace strata
