#include <string>

#include "strata/base/units.h"
#include "strata/claim/activation_bytes.h"
#include "strata/claim/claims.h"
#include "strata/plan/ledger/zero_bytes.h"

namespace strata {
namespace {

constexpr double kGigabyte = 1e9;

double rank_gigabytes(double parameters, int zero, int ranks) {
  return zero_bytes(parameters, precision_convention("zero-paper"), zero, ranks).total() /
         kGigabyte;
}

void add_states(Claim& claim) {
  const auto add = [&](const char* model, double parameters, int zero, int ranks,
                       double published) {
    claim.rows.push_back({.what = std::string(model) + " on " + std::to_string(ranks) +
                                  (ranks == 1 ? " rank, ZeRO " : " ranks, ZeRO ") +
                                  std::to_string(zero),
                          .unit = "GB",
                          .published = published,
                          .reproduced = rank_gigabytes(parameters, zero, ranks),
                          .tolerance = rounding(1),
                          .from_published = zero == 0});
  };
  add("7.5 G", 7.5e9, 0, 64, 120);
  add("7.5 G", 7.5e9, 1, 64, 31.4);
  add("7.5 G", 7.5e9, 2, 64, 16.6);
  add("7.5 G", 7.5e9, 3, 64, 1.9);
  add("7.5 G", 7.5e9, 1, 4, 52.5);
  add("7.5 G", 7.5e9, 2, 4, 41.3);
  add("7.5 G", 7.5e9, 3, 4, 30.0);
  add("1 T", 1e12, 3, 1024, 15.6);
  add("GPT-2 1.5 G", 1.5e9, 0, 1, 24);
}

void add_volume(Claim& claim) {
  for (const int zero : {0, 1, 2, 3}) {
    claim.rows.push_back({.what = "elements that a rank sends a step, of the parameters, ZeRO " +
                                  std::to_string(zero),
                          .unit = "times",
                          .decimals = 2,
                          .published = zero == 3 ? 3.0 : 2.0,
                          // the paper rounds (n - 1) / n to 1
                          .reproduced = zero_volume(zero, 1024),
                          .tolerance = within(0.002)});
  }
}

void add_conventions(Claim& claim) {
  constexpr int kReplicas = 64;
  const auto add = [&](const char* name, const char* convention, int zero, double published) {
    claim.rows.push_back(
        {.what = std::string("Megatron-LM, ") + name + ", 64 replicas: bytes a parameter",
         .unit = "B",
         .decimals = 4,
         .published = published,
         .reproduced = zero_bytes(1, precision_convention(convention), zero, kReplicas).total(),
         .tolerance = rounding(4),
         .from_published = zero == 0});
  };
  add("bf16 with fp32 gradients", "mixed", 0, 18);
  add("bf16, distributed optimizer", "mixed", 1, 6 + 12.0 / kReplicas);
  add("fp16", "megatron-fp16", 0, 20);
  add("fp16, distributed optimizer", "megatron-fp16", 1, 4 + 16.0 / kReplicas);
  add("fp32", "fp32", 0, 16);
  add("fp32, distributed optimizer", "fp32", 1, 8 + 8.0 / kReplicas);
}

// GPT-2 of 1.5 G parameters, 1,024 tokens and 32 samples.
void add_activations(Claim& claim) {
  constexpr DecoderShape kGpt2{
      .layers = 48, .width = 1600, .heads = 25, .vocabulary = 50257, .tokens = 1024};
  const LayerSplit split{.samples = 32};
  const double layers = static_cast<double>(kGpt2.layers);
  claim.rows.push_back(
      {.what = "activations of GPT-2 1.5 G, 32 samples of 1,024 tokens",
       .unit = "GB",
       .published = 60,
       .reproduced = layers * strata_activation_bytes(kGpt2, split, Recompute::kCheap) / kGigabyte,
       .tolerance = within(0.1),
       .explanation = {"The paper counts 12 numbers a token, layer and width; Strata keeps 10, "
                       "because it computes the outputs of norms and of the GELU again.",
                       0.2}});
  const double kept = layers * strata_activation_bytes(kGpt2, split, Recompute::kCheap, true);
  const double running = strata_activation_bytes(kGpt2, split, Recompute::kNone);
  claim.rows.push_back({.what = "the same with every layer computed again",
                        .unit = "GB",
                        .published = 8,
                        .reproduced = (kept + running) / kGigabyte,
                        .tolerance = within(0.2)});
  claim.rows.push_back(
      {.what = "operations that this adds to a step",
       .unit = "%",
       .decimals = 0,
       .published = 33,
       .reproduced = 100 * (step_flops(kGpt2, 32, true) / step_flops(kGpt2, 32, false) - 1),
       .tolerance = {.absolute = 2}});
}

}  // namespace

Claim zero_claim() {
  Claim claim{
      .name = "zero",
      .system = "DeepSpeed ZeRO",
      .statement =
          "Sharding optimizer states, gradients and weights of 7.5 G parameters over 64 "
          "ranks leaves 31.4, 16.6 and 1.9 GB of 120 GB on each.",
      .source =
          "Rajbhandari et al. 2020, arXiv 1910.02054, figure 1, table 1, sections 3 and 7; "
          "Megatron-LM, docs/user-guide/features/dist_optimizer.md",
      .method =
          "Strata's arithmetic of ZeRO (strata size parameters), with the bytes a parameter "
          "of each system, and the bytes of its own layers.",
      .pictured_unit = "GB",
      .strata =
          "Strata in bf16 keeps fp32 gradients and the lacking 16 bits of a weight as state, "
          "also 16 bytes a parameter; with ZeRO 2 and 3 its ledger adds the whole gradients and "
          "weights that are open at a time."};
  add_states(claim);
  add_volume(claim);
  add_conventions(claim);
  add_activations(claim);
  for (const int zero : {0, 1, 2, 3})
    claim.figures.push_back(
        {"7.5 G on 64 ranks, ZeRO " + std::to_string(zero) + ", Strata's bytes",
         format_double(
             zero_bytes(7.5e9, precision_convention("split"), zero, 64).total() / kGigabyte, 1) +
             " GB"});
  return claim;
}

}  // namespace strata
