#include "strata/plan/text/plan_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "strata/base/text_table.h"
#include "strata/plan/example_models_test.h"

namespace strata {
namespace {

using enum ScheduleKind;

PlanRequest small_gpt(const PipelineShape& shape, ScheduleKind schedule) {
  constexpr std::int64_t kMiB = 1 << 20;
  PlanRequest request;
  request.dataflow = chain(8);
  request.costs[Recompute::kCheap] = equal_costs(request.dataflow,
                                                 {.forward_seconds = 10e-3,
                                                  .backward_seconds = 20e-3,
                                                  .update_seconds = 1e-3,
                                                  .weight_bytes = 7 * kMiB,
                                                  .gradient_bytes = 7 * kMiB,
                                                  .state_bytes = 14 * kMiB,
                                                  .saved_bytes = 9 * kMiB,
                                                  .backward_transient_bytes = 3 * kMiB},
                                                 {.bytes = 3 * kMiB / 2, .transfer_seconds = 1e-5});
  request.costs[Recompute::kCheap].batch_bytes = 65536;
  request.costs[Recompute::kCheap].layers.front().name = "embed";
  request.costs[Recompute::kCheap].layers.front().recomputable = false;
  request.costs[Recompute::kCheap].layers.back().name = "head";
  for (int l = 1; l < 7; ++l)
    request.costs[Recompute::kCheap].layers[l].name = "block" + std::to_string(l - 1);
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  set_shape(request, shape);
  request.schedule = schedule;
  return request;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(PlanText, SmallBytesAreNotShownAsZero) {
  Ledger ledger(2);
  ledger[0].at_peak[ByteKind::kWeights] = ledger[0].peak_bytes = 20 << 20;
  ledger[1].at_peak[ByteKind::kWeights] = 12 << 10;
  ledger[1].at_peak[ByteKind::kBatch] = 64;
  ledger[1].peak_bytes = (12 << 10) + 64;
  EXPECT_EQ(byte_table(ledger, 0),
            "MiB on rank    weights  batch       peak\n"
            "          0       20.0    0.0       20.0\n"
            "          1  12.00 KiB   64 B  12.06 KiB\n");
  ledger[0].host.weights = 20 << 20;
  ledger[1].host.weights = 12 << 10;
  EXPECT_EQ(host_table(ledger, 0),
            "MiB on host of rank    weights        all\n"
            "                  0       20.0       20.0\n"
            "                  1  12.00 KiB  12.00 KiB\n");
}

TEST(PlanText, ShowsStagesOrderBytesAndPrediction) {
  PlanRequest request = small_gpt({2, 4}, k1f1b);
  request.memory = {.device = {std::int64_t{190} << 20}, .recompute = RecomputeMode::kAuto};
  EXPECT_EQ(plan_text(make_plan(request)), R"(1f1b · 2 ranks · 8 layers · 4 micro-batches a step

stage  rank  layers                     weights  forward  backward
    0     0       4  embed .. block2  28.00 MiB    40 ms     90 ms
    1     1       4  block3 .. head   28.00 MiB    40 ms     80 ms

rank 0: F0 F1 .  B0 F2 B1 F3 B2 .  B3
rank 1: .  F0 B0 F1 B1 F2 B2 F3 B3 .

MiB on rank  weights  gradients  states  saved  values  transients  batch   peak  budget
          0     28.0       28.0    56.0   54.0    13.5         3.0    0.1  182.6    96 %
          1     28.0       28.0    56.0   36.0     9.0         3.0    0.1  160.1    84 %

recompute  auto: 1 of 8 layers (block0)
memory     182.56 MiB on the fullest rank, budget 190.00 MiB
predicted  634 ms a step, bubble 20.5 %
)");
}

TEST(PlanText, FitsFortyLinesAndTerminalWidth) {
  for (const int ranks : {1, 2, 4}) {
    for (const int columns : {80, 100}) {
      const Plan plan = make_plan(small_gpt({ranks, 64, 2}, kInterleaved));
      const auto lines = lines_of(plan_text(plan, columns));
      EXPECT_LT(lines.size(), 40u);
      for (const std::string& line : lines) {
        const auto width =
            std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
        EXPECT_LE(width, columns) << line;
      }
    }
  }
}

TEST(PlanText, OmitsWhatDoesNotApply) {
  const std::string text = plan_text(make_plan(small_gpt({1, 1}, k1f1b)));
  EXPECT_EQ(text.find("replicas"), std::string::npos);  // nothing is tied
  EXPECT_EQ(text.find("budget"), std::string::npos);
  EXPECT_EQ(text.find("host"), std::string::npos);
  EXPECT_NE(text.find("1 rank · 8 layers · 1 micro-batch a step"), std::string::npos);
  EXPECT_NE(text.find("bubble 0.0 %"), std::string::npos);
}

TEST(PlanText, NamesFewRecomputedLayersAndCountsRest) {
  PlanRequest request = small_gpt({2, 4}, k1f1b);
  request.memory.recompute = RecomputeMode::kFull;
  EXPECT_NE(plan_text(make_plan(request))
                .find("recompute  full: 7 of 8 layers (block0, block1, block2, block3 and 3 more)"),
            std::string::npos);
}

TEST(PlanText, ShowsOffloadsAndTheirCost) {
  PlanRequest request = small_gpt({1, 1}, k1f1b);
  request.micro_batch = 4;
  request.sample_tokens = 64;
  request.memory = {.device = {std::int64_t{140} << 20},
                    .host = {std::int64_t{448} << 20},
                    .recompute = RecomputeMode::kCheap,
                    .weights = TierChoice::kHost,
                    .window = 2};
  const Bytes link{std::int64_t{7} << 30};
  request.machine.link = {.to_device = link, .to_host = link, .latency = 1e-3};
  const std::string text = plan_text(make_plan(request));
  // Two of 8 layers of 7 MiB stay between forward and backward; each transfer takes 2 ms.
  for (const char* part :
       {"MiB on host of rank  weights  gradients  states    all  budget\n"
        "                  0     56.0       56.0   112.0  224.0    50 %\n",
        "tiers      weights, gradients and states on the host, window 2 layers, updated once the "
        "norm is known\n",
        "host       224.00 MiB on the fullest rank, budget 448.00 MiB\n",
        "link       98.00 MiB to the device, 56.00 MiB to the host a step\n",
        "binding    link-bound below 29.5 tokens a step; optimizer-bound below 25.6; this one has "
        "256: compute binds\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
  const auto json = nlohmann::json::parse(to_json(make_plan(request)).dump());
  EXPECT_EQ(json["tiers"]["weights"], "host");
  EXPECT_EQ(json["tiers"]["window"], 2);
  EXPECT_EQ(json["tiers"]["link"][0]["to_device_bytes"], 98 << 20);
  EXPECT_EQ(json["ranks"][0]["memory"]["host_bytes"], 224 << 20);
  std::int64_t tracks = 0;
  for (const auto& event : json["ranks"][0]["lanes"]) tracks += event["lane"] == "link in";
  EXPECT_EQ(tracks, 14);
}

TEST(PlanText, ShowsWhatLivesOnDisk) {
  PlanRequest request = small_gpt({1, 1}, k1f1b);
  request.micro_batch = 4;
  request.sample_tokens = 64;
  request.memory = {.weights = TierChoice::kDisk, .states = TierChoice::kDisk, .window = 2};
  request.memory.disk = {.path = "/scratch", .bytes = {std::int64_t{1} << 30}};
  const std::string text = plan_text(make_plan(request));
  // 56 MiB of weights, read by 14 fetches, read and written by one update; 112 MiB of states.
  for (const char* part :
       {"MiB on host of rank  gradients  staging    all\n",
        "MiB on disk of rank  weights  states  files  budget\n"
        "                  0     56.0   112.0  336.0    33 %\n",
        "tiers      gradients on the host, weights and states on the disk, window 2 layers",
        "disk       336.00 MiB on the fullest rank, budget 1.00 GiB; 266.00 MiB read and 168.00 "
        "MiB "
        "written a step, ",
        " a day\n", "disk read 1.0 GB/s (assumed), written 1.0 GB/s (assumed)",
        "disk-bound below "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  }
  const auto json = nlohmann::json::parse(to_json(make_plan(request)).dump());
  EXPECT_EQ(json["tiers"]["states"], "disk");
  EXPECT_EQ(json["tiers"]["link"][0]["disk_written_bytes"], 168 << 20);
  EXPECT_EQ(json["ranks"][0]["memory"]["disk_bytes"], 336 << 20);
  EXPECT_EQ(json["ranks"][0]["memory"]["disk"]["states"], 112 << 20);
}

TEST(PlanText, StatesWhichGradientsUpdatesConsumeAtOnce) {
  PlanRequest request = small_gpt({1, 1}, k1f1b);
  request.micro_batch = 4;
  request.sample_tokens = 64;
  request.memory = {.weights = TierChoice::kDisk,
                    .gradients = TierChoice::kDisk,
                    .states = TierChoice::kDisk,
                    .window = 2};
  request.memory.disk = {.path = "/scratch"};
  const auto line = [&] {
    const std::string text = plan_text(make_plan(request));
    const std::size_t begin = text.find("tiers ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(line(),
            "tiers      weights, gradients and states on the disk, window 2 layers, updated once "
            "the norm is known");
  request.updates_at_once = true;
  EXPECT_EQ(line(),
            "tiers      gradients on the host, weights and states on the disk, window 2 layers, "
            "updated as soon as a gradient lands, gradients in 2 host buffers by turns");
  EXPECT_EQ(nlohmann::json::parse(to_json(make_plan(request)).dump())["tiers"]["gradients"],
            "host");
  // No gradient is consumed before the replicas have added theirs.
  request.mesh.axes[Axis::kData] = 2;
  EXPECT_EQ(line(),
            "tiers      weights, gradients and states on the disk, window 2 layers, updated once "
            "the norm is known");
}

TEST(PlanJson, HoldsStagesTimelineAndMemoryOfEveryRank) {
  const Plan plan = make_plan(small_gpt({2, 4}, k1f1b));
  const auto json = nlohmann::json::parse(to_json(plan).dump());
  EXPECT_EQ(json["schedule"], "1f1b");
  EXPECT_EQ(json["micro_batches"], 4);
  EXPECT_EQ(json["step_seconds"], plan.simulation.step_seconds);
  EXPECT_EQ(json["recompute"]["mode"], "cheap");
  EXPECT_TRUE(json["recompute"]["layers"].empty());
  ASSERT_EQ(json["stages"].size(), 2u);
  EXPECT_EQ(json["stages"][1]["rank"], 1);
  EXPECT_EQ(json["stages"][0]["layers"][0], "embed");
  EXPECT_EQ(json["stages"][1]["layers"].back(), "head");
  ASSERT_EQ(json["ranks"].size(), 2u);
  for (int r = 0; r < 2; ++r) {
    const auto& rank = json["ranks"][r];
    EXPECT_EQ(rank["timeline"].size(), plan.schedule().programs[r].size());
    EXPECT_EQ(rank["memory"]["peak_bytes"], plan.ledger[r].peak_bytes);
    std::int64_t sum = 0;
    for (const auto& bytes : rank["memory"]["bytes_at_peak"]) sum += bytes.get<std::int64_t>();
    EXPECT_EQ(sum, plan.ledger[r].peak_bytes);
    EXPECT_EQ(rank["memory"]["peak_action"].get<std::string>().substr(0, 2), "B ");
    EXPECT_EQ(rank["memory"]["timeline"][0][0], 0.0);
  }
  EXPECT_EQ(json["ranks"][0]["timeline"][0]["kind"], "F");
  EXPECT_EQ(json["ranks"][0]["timeline"][0]["end_seconds"], 40e-3);
}

TEST(TextTable, AlignsCharactersNotBytes) {
  TextTable table("lr");
  table.add_row({"größe", "1"});
  table.add_row({"x", "234"});
  EXPECT_EQ(table.text(), "größe    1\nx      234\n");
}

TEST(TextTable, HasNoBlanksAtEndOfLine) {
  TextTable table("ll");
  table.add_row({"a", "long"});
  table.add_row({"b", ""});
  EXPECT_EQ(table.text(), "a  long\nb\n");
}

}  // namespace
}  // namespace strata
