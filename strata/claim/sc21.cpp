// Megatron-LM on thousands of A100. Seconds are simulated with the paper's meshes and kernels that
// store attention's scores, as Megatron-LM had them; the rate of products is another paper's.
#include <array>
#include <string>

#include "strata/claim/claims.h"
#include "strata/claim/decoder_plans.h"

namespace strata {
namespace {

// A row of table 1. `virtual_stages`: Megatron-LM's script of the table interleaves 76.1 to 529.6 G
// with 5, 5, 3 and 1 layers a virtual stage.
struct Sc21Row {
  double parameters_g;
  std::int64_t heads, width, layers;
  int tensor, pipeline, gpus, samples, micro_batch, virtual_stages;
  double tflops, peak_percent, pflops;
};

constexpr std::array kSc21Rows{
    Sc21Row{1.7, 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137, 44, 4.4},
    Sc21Row{3.6, 32, 3072, 30, 2, 1, 64, 512, 16, 1, 138, 44, 8.8},
    Sc21Row{7.5, 32, 4096, 36, 4, 1, 128, 512, 16, 1, 142, 46, 18.2},
    Sc21Row{18.4, 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 135, 43, 34.6},
    Sc21Row{39.1, 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 138, 44, 70.8},
    Sc21Row{76.1, 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140, 45, 143.8},
    Sc21Row{145.6, 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148, 47, 227.1},
    Sc21Row{310.1, 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155, 50, 297.4},
    Sc21Row{529.6, 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163, 52, 410.2},
    Sc21Row{1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 163, 52, 502.0},
};

DecoderTraining sc21_training(const Sc21Row& row, DecoderKernels kernels) {
  return selene_training({.layers = row.layers, .width = row.width, .heads = row.heads},
                         row.samples, kernels);
}

DecoderMesh sc21_mesh(const Sc21Row& row) {
  return {.axes = {{Axis::kPipeline, row.pipeline},
                   {Axis::kData, row.gpus / (row.pipeline * row.tensor)},
                   {Axis::kTensor, row.tensor}},
          .micro_batch = row.micro_batch,
          .virtual_stages = row.virtual_stages,
          .recomputes_layers = true};
}

// Equation 4: seconds to train on `tokens` with the published rate of all GPUs.
double training_days(double parameters, double tokens, double gpus, double tflops) {
  constexpr double kSecondsADay = 86400;
  return 8 * tokens * parameters / (gpus * tflops * 1e12) / kSecondsADay;
}

// Returns the simulated TFLOP/s a GPU.
double add_row(Claim& claim, const Sc21Row& row) {
  const DecoderTraining theirs = sc21_training(row, DecoderKernels::kPublished);
  const std::string model = format_double(row.parameters_g, 1) + " G";
  const double flops =
      step_flops(theirs.shape, static_cast<double>(theirs.samples), /*recomputes=*/true);
  const double seconds = planned(theirs, sc21_mesh(row)).simulation.step_seconds;
  constexpr double kTera = 1e12, kGiga = 1e9;
  const double simulated = flops / (seconds * row.gpus) / kTera;
  claim.rows.push_back({.what = model + ": parameters, equation 2",
                        .unit = "G",
                        .published = row.parameters_g,
                        .reproduced = parameters_of(theirs.shape) / kGiga,
                        .tolerance = rounding(1)});
  claim.rows.push_back({.what = model + ": FLOP/s a GPU, simulated step",
                        .unit = "TFLOP/s",
                        .decimals = 0,
                        .published = row.tflops,
                        .reproduced = simulated,
                        .tolerance = within(0.15)});
  // The table rounds TFLOP/s to whole numbers.
  claim.rows.push_back({.what = model + ": PFLOP/s, from TFLOP/s a GPU x GPUs",
                        .unit = "PFLOP/s",
                        .published = row.pflops,
                        .reproduced = row.tflops * row.gpus / 1e3,
                        .tolerance = {.absolute = 0.5 * row.gpus / 1e3 + 0.05},
                        .from_published = true});
  const double peak = theirs.machine.device.peak / kTera;
  claim.rows.push_back({.what = model + ": TFLOP/s a GPU of the data sheet's 312",
                        .unit = "%",
                        .decimals = 0,
                        .published = row.peak_percent,
                        .reproduced = 100 * row.tflops / peak,
                        .tolerance = {.absolute = 0.5 + 50 / peak},
                        .from_published = true});
  claim.plans.push_back(strata_plan(sc21_training(row, DecoderKernels::kStrata), row.gpus,
                                    {.device = "A100",
                                     .published_flops_a_second = row.tflops * kTera,
                                     .recomputes = true,
                                     .simulated_seconds = seconds}));
  return simulated;
}

}  // namespace

Claim sc21_claim() {
  Claim claim{
      .name = "sc21",
      .system = "Megatron-LM",
      .statement =
          "Models of 1.7 to 1,008 G parameters train on 32 to 3,072 A100 at 135 to 163 "
          "TFLOP/s a GPU; a trillion parameters reach 502 PFLOP/s.",
      .source =
          "Narayanan et al. 2021, arXiv 2104.04473, table 1, equations 2 to 4; virtual stages: "
          "Megatron-LM, examples/sc21/run_table_1.sh",
      .method =
          "Equations from the counts of each layer; seconds from programs of the paper's "
          "meshes in Strata's simulator, products at the rate of another paper's layer, which is "
          "narrower than those of six of these ten models.",
      .pictured_unit = "TFLOP/s",
      .strata =
          "The fastest mesh of the same GPUs and mini-batch in the same simulator, with the "
          "same rate of products, fused attention, sequence parallelism and ZeRO 0 or 1."};
  std::vector<double> simulated;
  for (const Sc21Row& row : kSc21Rows) simulated.push_back(add_row(claim, row));
  claim.rows.push_back({.what = "1,008 G over 1.7 G, FLOP/s a GPU of simulated steps",
                        .unit = "times",
                        .decimals = 2,
                        .published = kSc21Rows.back().tflops / kSc21Rows.front().tflops,
                        .reproduced = simulated.back() / simulated.front(),
                        .tolerance = within(0.05)});
  claim.rows.push_back({.what = "1,008 G on 450 G tokens, 3,072 GPUs, equation 4",
                        .unit = "days",
                        .decimals = 0,
                        .published = 84,
                        .reproduced = training_days(1008e9, 450e9, 3072, 163),
                        .tolerance = rounding(0),
                        .from_published = true});
  claim.rows.push_back({.what = "175 G on 300 G tokens, 1,024 GPUs, equation 4",
                        .unit = "days",
                        .decimals = 0,
                        .published = 34,
                        .reproduced = training_days(175e9, 300e9, 1024, 140),
                        .tolerance = rounding(0),
                        .from_published = true});
  return claim;
}

}  // namespace strata
