// Lines of MLPerf Training v1.1. Minutes to a target depend on data and convergence, which no plan
// predicts; what follows from a step is computed.
#include <array>
#include <string>

#include "strata/base/units.h"
#include "strata/claim/claims.h"
#include "strata/claim/decoder_plans.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/plan/search/proposal.h"

namespace strata {
namespace {

// Minutes of NVIDIA's submissions: a machine of 8 GPUs and the largest system.
struct MlperfLine {
  const char* benchmark;
  double minutes_8;
  int largest;
  double minutes_largest;
  std::int64_t batch_8, batch_largest;  // 0: not known
};
constexpr std::array kMlperfLines{MlperfLine{"BERT", 20.00, 4320, 0.226, 448, 12960},
                                  MlperfLine{"ResNet-50", 29.15, 4320, 0.347, 3264, 64800},
                                  MlperfLine{"DLRM", 1.709, 112, 0.632, 55296, 71680},
                                  MlperfLine{"Mask R-CNN", 46.17, 408, 3.24, 0, 272},
                                  MlperfLine{"SSD", 8.26, 1024, 0.454, 0, 0},
                                  MlperfLine{"RNN-T", 34.24, 1536, 2.38, 0, 0},
                                  MlperfLine{"UNet3D", 25.52, 768, 1.34, 0, 0}};

constexpr const char* kMoreSamplesToTarget =
    "Strata simulates samples a second, not minutes to a target; larger mini-batches need more "
    "samples "
    "to the target, by a number that no plan knows.";

// BERT-large with 512 tokens; its vocabulary is a decoder's head here.
DecoderTraining bert_training(int gpus, std::int64_t samples) {
  DecoderTraining training{
      .shape = {.layers = 24, .width = 1024, .heads = 16, .vocabulary = 30522, .tokens = 512},
      .samples = samples * gpus,
      .machine = claim_machine("a100-selene"),
      .kernels = DecoderKernels::kStrata};
  return training;
}

// Seconds of a step with every kernel launched by the host, or with the recorded step repeated.
double bert_seconds(int gpus, std::int64_t samples, bool recorded) {
  const DecoderTraining training = bert_training(gpus, samples);
  PlanRequest request =
      decoder_request(training, {.axes = {{Axis::kData, gpus}}, .micro_batch = samples});
  for (CostTable& costs : request.costs) {
    if (costs.layers.empty()) continue;
    constexpr double kLaunch = 7e-6, kGraphLaunch = 10e-6;  // docs/planning.md
    costs.launch = {.kernel = kLaunch, .segment = kGraphLaunch};
  }
  request.recording = recorded ? RecordingPlan::kAlways : RecordingPlan::kNever;
  return propose(request).simulation.step_seconds;
}

// A note, not a row: the published factor is of v1.0, whose settings are not described.
void add_recorded(Claim& claim) {
  constexpr int kGpus = 4096;
  const double factor = bert_seconds(kGpus, 3, false) / bert_seconds(kGpus, 3, true);
  claim.figures.push_back(
      {"recorded steps (CUDA graphs) over launched ones, BERT with 3 samples of 512 tokens",
       format_double(factor, 2) + " times; NVIDIA states 1.12 for v1.0 on 4,096 GPUs"});
}

void add_batches(Claim& claim) {
  const MlperfLine& bert = kMlperfLines[0];
  claim.rows.push_back({.what = "BERT on 4,320 GPUs: samples of a GPU a step",
                        .unit = "",
                        .decimals = 0,
                        .published = 3,
                        .reproduced = static_cast<double>(bert.batch_largest) / bert.largest,
                        .tolerance = rounding(0),
                        .from_published = true});
}

// Both submissions train on the same data; the larger mini-batch needs more samples to the target.
void add_scaling(Claim& claim) {
  constexpr int kMachine = 8;
  const auto samples_a_second = [](int gpus, std::int64_t batch) {
    return static_cast<double>(batch) / bert_seconds(gpus, batch / gpus, true);
  };
  const auto add = [&](const char* what, int gpus, std::int64_t batch, double minutes_8,
                       double minutes, double up_to) {
    const std::int64_t batch_8 = kMlperfLines[0].batch_8;
    claim.rows.push_back(
        {.what = what,
         .unit = "times",
         .published = minutes_8 / minutes,
         .reproduced = samples_a_second(gpus, batch) / samples_a_second(kMachine, batch_8),
         .tolerance = rounding(1),
         .explanation = {kMoreSamplesToTarget, up_to}});
  };
  const MlperfLine& bert = kMlperfLines[0];
  add("BERT: 4,320 GPUs over 8, time to the target", bert.largest, bert.batch_largest,
      bert.minutes_8, bert.minutes_largest, 0.3);
  add("BERT on Azure: 2,048 GPUs over 8, time to the target", 2048, 6144, 21.21, 0.422, 0.1);
}

}  // namespace

Claim mlperf_claim() {
  Claim claim{
      .name = "mlperf",
      .system = "MLPerf v1.1 (NVIDIA)",
      .statement = "BERT reaches its target in 20 minutes on 8 A100 and in 14 seconds on 4,320.",
      .source =
          "MLCommons, training_results_v1.1 (logs: run_start to run_stop); PyTorch blog, "
          "2021-10-26; NVIDIA blog on MLPerf v1.0",
      .method =
          "Recorded steps of BERT-large as a decoder of 512 tokens in Strata's simulator. Minutes "
          "to a target are not predicted: they depend on convergence.",
      .strata =
          "The other lines are listed, not reproduced: Strata has no descriptions of their "
          "networks to plan."};
  add_batches(claim);
  add_scaling(claim);
  add_recorded(claim);
  for (const MlperfLine& line : kMlperfLines) {
    const double speedup = line.minutes_8 / line.minutes_largest;
    claim.figures.push_back({std::string(line.benchmark) + ": from 8 to " + grouped(line.largest) +
                                 " GPUs, published minutes",
                             format_double(speedup, 1) + " times as fast, " +
                                 format_double(100 * speedup * 8 / line.largest, 0) +
                                 " % of linear"});
  }
  return claim;
}

}  // namespace strata
