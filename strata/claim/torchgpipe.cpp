#include <array>
#include <string>

#include "strata/base/units.h"
#include "strata/claim/amoebanet_counts.h"
#include "strata/claim/claims.h"
#include "strata/claim/equal_pipeline.h"
#include "strata/plan/ledger/zero_bytes.h"

namespace strata {
namespace {

double torchgpipe_speed(int ranks, int micro_batches, bool recomputes = true,
                        ScheduleKind schedule = ScheduleKind::kGpipe, int virtual_stages = 1) {
  return equal_speed({.schedule = schedule,
                      .ranks = ranks,
                      .micro_batches = micro_batches,
                      .virtual_stages = virtual_stages,
                      .recomputes = recomputes,
                      .keeps_one = micro_batches > 1});
}

void add_memory(Claim& claim) {
  struct Column {
    const char* name;
    double parameters, unit;
    int decimals;
    double model_gib;
  };
  // In the order of kAmoebaNetCounts.
  constexpr Column kColumns[] = {{"naive-1", 81.5, 1e6, 1, .91},
                                 {"pipeline-1", 319.0, 1e6, 1, 3.57},
                                 {"pipeline-2", 542.7, 1e6, 1, 6.07},
                                 {"pipeline-4", 1.06, 1e9, 2, 11.80},
                                 {"pipeline-8", 1.84, 1e9, 2, 20.62}};
  constexpr double kGib = 1 << 30;
  for (std::size_t i = 0; i < std::size(kColumns); ++i) {
    const Column& column = kColumns[i];
    const double parameters = kAmoebaNetCounts[i].parameters;
    const std::string name = "AmoebaNet-D " + std::string(column.name);
    claim.rows.push_back({.what = name + ": parameters",
                          .unit = column.unit == 1e6 ? "M" : "G",
                          .decimals = column.decimals,
                          .published = column.parameters,
                          .reproduced = parameters / column.unit,
                          .tolerance = rounding(column.decimals)});
    claim.rows.push_back(
        {.what = name + ": model memory",
         .unit = "GiB",
         .decimals = 2,
         .published = column.model_gib,
         .reproduced =
             zero_bytes(parameters, {.weight = 4, .gradient = 4, .states = 4}, 0, 1).total() / kGib,
         .tolerance = within(0.01)});
  }
}

struct SpeedCell {
  int ranks, micro_batches;
  double published;
  double covered = 0;  // share of the published number that unequal stages explain
};

void add_speeds(Claim& claim, const char* model, double base,
                std::initializer_list<SpeedCell> cells, const char* why) {
  for (const SpeedCell& cell : cells)
    claim.rows.push_back({.what = std::string(model) + ", n=" + std::to_string(cell.ranks) +
                                  ", m=" + std::to_string(cell.micro_batches),
                          .unit = "times",
                          .decimals = 3,
                          .published = cell.published,
                          .reproduced = torchgpipe_speed(cell.ranks, cell.micro_batches) / base,
                          .tolerance = within(0.1),
                          .explanation = {cell.covered > 0 ? why : "", cell.covered, false}});
}

}  // namespace

Claim torchgpipe_claim() {
  Claim claim{
      .name = "torchgpipe",
      .system = "torchgpipe",
      .statement =
          "On 8 P40 GPUs and 32 micro-batches an AmoebaNet trains 4.95 times as fast as on "
          "2 GPUs with one; recompute costs a quarter of the speed.",
      .source =
          "kakaobrain/torchgpipe, docs/benchmarks.rst, docs/guide.rst and benchmarks/; Kim et al. "
          "2020, arXiv 2004.09910",
      .method =
          "Strata's GPipe schedule in its simulator with equal stages and the published "
          "micro-batches; every one but the last runs forward again, with one micro-batch this "
          "one does. Parameters counted by Strata's example, 12 bytes each.",
      .strata =
          "strata.GPipe runs torchgpipe's programs; python3 bench/graph/amoebanet.py plans "
          "the AmoebaNets of this table with a third to a twentieth of its activations "
          "(docs/results.md)."};
  add_memory(claim);
  constexpr const char* kUnequalCells =
      "Stages are equal here; the published ones are cuts of 24 layers, such as 2, "
      "2, 2, 3, 3, 4, 4 and 4, and each setting has its own mini-batch, of 96 to 1,280 images.";
  add_speeds(claim, "AmoebaNet-D (18, 256)", torchgpipe_speed(2, 1),
             {{2, 4, 1.539},
              {2, 32, 1.773},
              {4, 1, 1.004},
              {4, 4, 1.666, 0.5},
              {4, 32, 2.709, 0.35},
              {8, 1, .932, 0.25},
              {8, 4, 2.621, 0.3},
              {8, 32, 4.953, 0.35}},
             kUnequalCells);
  constexpr const char* kOther =
      "Stages are equal here; the published ones have 22 to 69 of 370 layers "
      "(ResNet-101, n=8), 104 and 137 of 241 (U-Net, n=2), 30 to 84 (n=4) or 16 to 57 (n=8).";
  const double whole = torchgpipe_speed(1, 1, /*recomputes=*/false);
  add_speeds(claim, "ResNet-101 against no pipeline", whole,
             {{1, 2, .853}, {2, 1667, 1.414}, {4, 256, 2.774}, {8, 150, 4.294, 0.4}}, kOther);
  add_speeds(claim, "U-Net (5, 64) against no pipeline", whole,
             {{1, 2, .858}, {2, 32, 1.246, 0.2}, {4, 16, 2.352, 0.2}, {8, 40, 3.105, 0.8}}, kOther);
  claim.rows.push_back({.what = "part of the speed that recompute costs",
                        .unit = "%",
                        .decimals = 0,
                        .published = 25,
                        .reproduced = 100 * (1 - torchgpipe_speed(1, 1) / whole),
                        .tolerance = {.absolute = 1}});
  const auto figure = [&](const char* name, bool recomputes, ScheduleKind kind, int stages) {
    claim.figures.push_back(
        {name, format_double(torchgpipe_speed(8, 32, recomputes, kind, stages) / whole, 2) +
                   " times no pipeline"});
  };
  figure("8 equal stages, 32 micro-batches, gpipe, all but one run again", true,
         ScheduleKind::kGpipe, 1);
  figure("the same, 1f1b, recompute none", false, ScheduleKind::k1f1b, 1);
  figure("the same, zbv, recompute none", false, ScheduleKind::kZbv, 2);
  return claim;
}

}  // namespace strata
