#include <array>
#include <string>

#include "strata/base/units.h"
#include "strata/claim/claims.h"
#include "strata/claim/equal_pipeline.h"
#include "strata/plan/ledger/zero_bytes.h"

namespace strata {
namespace {

// Mini-batches a second of equal stages. torchgpipe runs forward again for all micro-batches but
// the last one; this counts all.
double torchgpipe_speed(int ranks, int micro_batches, bool recomputes = true,
                        ScheduleKind schedule = ScheduleKind::kGpipe, int virtual_stages = 1) {
  const double part = 1.0 / (ranks * micro_batches);
  return 1 / pipeline_seconds({.schedule = schedule,
                               .ranks = ranks,
                               .micro_batches = micro_batches,
                               .virtual_stages = virtual_stages,
                               .forward = part,
                               .input = part,
                               .weight = part,
                               .recomputes = recomputes});
}

void add_memory(Claim& claim) {
  struct Column {
    const char* name;
    double parameters, model_gib;
  };
  constexpr Column kColumns[] = {{"naive-1", 81.5e6, .91},
                                 {"pipeline-1", 319.0e6, 3.57},
                                 {"pipeline-2", 542.7e6, 6.07},
                                 {"pipeline-4", 1.06e9, 11.80},
                                 {"pipeline-8", 1.84e9, 20.62}};
  constexpr double kGib = 1 << 30;
  for (const Column& column : kColumns)
    claim.rows.push_back({.what = "AmoebaNet-D " + std::string(column.name) + ": model memory",
                          .unit = "GiB",
                          .decimals = 2,
                          .published = column.model_gib,
                          .reproduced = zero_bytes(column.parameters,
                                                   {.weight = 4, .gradient = 4, .states = 4}, 0, 1)
                                            .total() /
                                        kGib,
                          .tolerance = within(0.01)});
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
                          .explanation = {cell.covered > 0 ? why : "", cell.covered}});
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
          "kakaobrain/torchgpipe, docs/benchmarks.rst and docs/guide.rst; Kim et al. 2020, "
          "arXiv 2004.09910",
      .method = "Strata's GPipe schedule in its simulator with equal stages; 12 bytes a parameter.",
      .strata =
          "strata.GPipe runs torchgpipe's programs; python3 bench/graph/amoebanet.py plans "
          "the AmoebaNets of this table with a third to a twentieth of its activations "
          "(docs/results.md)."};
  add_memory(claim);
  constexpr const char* kUnequalCells =
      "Cells of AmoebaNet take unequal times and a GPU works less well on small micro-batches; "
      "stages are equal here.";
  add_speeds(claim, "AmoebaNet-D (18, 256)", torchgpipe_speed(2, 1),
             {{2, 4, 1.539},
              {2, 32, 1.773},
              {4, 1, 1.004},
              {4, 4, 1.666, 0.45},
              {4, 32, 2.709, 0.3},
              {8, 1, .932, 0.25},
              {8, 4, 2.621, 0.2},
              {8, 32, 4.953, 0.3}},
             kUnequalCells);
  constexpr const char* kOther =
      "Stages are equal here and 32 micro-batches are assumed; a forward of these networks takes "
      "less than a third of a step, and U-Net also copies its skips between stages.";
  const double whole = torchgpipe_speed(1, 1, /*recomputes=*/false);
  add_speeds(claim, "ResNet-101 against no pipeline", whole,
             {{1, 1, .853, 0.15}, {2, 32, 1.414}, {4, 32, 2.774}, {8, 32, 4.294, 0.25}}, kOther);
  add_speeds(claim, "U-Net (5, 64) against no pipeline", whole,
             {{1, 1, .858, 0.15}, {2, 32, 1.246, 0.2}, {4, 32, 2.352, 0.2}, {8, 32, 3.105, 0.7}},
             kOther);
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
  figure("8 equal stages, 32 micro-batches, gpipe, recompute full", true, ScheduleKind::kGpipe, 1);
  figure("the same, 1f1b, recompute none", false, ScheduleKind::k1f1b, 1);
  figure("the same, zbv, recompute none", false, ScheduleKind::kZbv, 2);
  return claim;
}

}  // namespace strata
