/// Makes the report of a run that never was, for tests and to look at.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "strata/report/example_timeline_test.h"
#include "strata/report/report.h"

namespace strata::report_test {

/// One 1F1B step of `ranks` stages; `stretch` makes all of it slower.
inline ReportTimeline step(int ranks, int micro_batches, double stretch, double begin_seconds) {
  return pipeline_step({.forward_seconds = std::vector<double>(ranks, 0.06 * stretch),
                        .backward_ratio = 2.1,
                        .micro_batches = micro_batches,
                        .transfer_seconds = 0.0004 * stretch,
                        .update_seconds = 0.036 * stretch,
                        .recomputes_first = true,
                        .begin_seconds = begin_seconds});
}

inline std::vector<StepRecord> records(int steps) {
  std::vector<StepRecord> records;
  for (int i = 1; i <= steps; ++i) {
    const double noise = 0.05 * std::sin(12.9898 * i) * std::cos(78.233 * i);
    StepRecord record{.step = i,
                      .loss = 1.72 + 3.85 * std::exp(-i / 45.0) + noise,
                      .gradient_norm = 0.9,
                      .tokens_per_second = 5230.0 + 40 * std::sin(i),
                      .step_seconds = 1.566,
                      .bubble = 0.132};
    record.peak_bytes = {432'000'000, 318'000'000};
    if (i % 50 == 0) record.validation_loss = 1.79 + 3.85 * std::exp(-i / 45.0);
    records.push_back(record);
  }
  return records;
}

inline ReportInput example(int ranks = 2, int micro_batches = 8, int steps = 400) {
  ReportInput input{.title = "GPT, 10.7 M weights"};
  input.facts = {{"model", "6 layers, width 384, 6 heads, context 256"},
                 {"mesh", std::to_string(ranks) + " stages, 1 thread each"},
                 {"schedule", "1f1b, " + std::to_string(micro_batches) + " micro-batches of 4"},
                 {"recompute", "auto: 1 of 8 layers"},
                 {"data", "data/kjv.txt, bytes"},
                 {"machine", "2 cores, AVX2"}};
  input.records = records(steps);
  input.validation_loss = 1.7931;
  input.predicted = step(ranks, micro_batches, 1.0, 0);
  input.measured = step(ranks, micro_batches, 1.06, 5000);
  input.step_seconds = {input.predicted.step_seconds, input.measured.step_seconds};
  input.bubble = {0.121, 0.132};
  input.measured_step = steps;
  constexpr std::int64_t kMiB = 1 << 20;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t saved = (ranks - rank) * 92 * kMiB;
    input.memory.push_back({.kinds = {{"weights", 21 * kMiB},
                                      {"gradients", 21 * kMiB},
                                      {"optimizer states", 42 * kMiB},
                                      {"tied copies", rank == 0 ? 0 : 2 * kMiB},
                                      {"saved for backward", saved},
                                      {"values", 14 * kMiB},
                                      {"transients", 26 * kMiB},
                                      {"batch", kMiB / 8}},
                            .predicted_peak = (124 + 2 * (rank != 0)) * kMiB + saved + kMiB / 8,
                            .measured_peak = 127 * kMiB + saved});
  }
  input.budget_bytes = 512 * kMiB;
  input.prompt = "And God said";
  input.sample =
      " unto them, Behold, I will bring the words of the LORD thy God, and ye shall not hearken "
      "unto "
      "the voice of the people.\n\n1:14 And the king of Israel said unto David, Go up against the "
      "city, and smite it: for the LORD hath given it into thine hand.\n\n1:15 Then they took him, "
      "and brought him before the congregation, and all the elders of the land stood by the altar.";
  input.appendices = {{"Recipe", "model:  {kind: gpt, layers: 6, width: 384}\nmesh:   {pp: 2}"},
                      {"Plan", "rank 0: F0 F1 B0 F2 B1\nrank 1: .  F0 B0 F1 B1"}};
  return input;
}

}  // namespace strata::report_test
