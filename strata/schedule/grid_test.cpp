#include "strata/schedule/grid.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

std::string golden(const std::string& name) {
  std::ifstream file(std::string(STRATA_SOURCE_DIR) + "/tests/golden/" + name);
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Grid, GpipeFillsThenDrains) {
  EXPECT_EQ(draw_grid(gpipe({.ranks = 3, .micro_batches = 3})), golden("gpipe_p3_m3.txt"));
}

TEST(Grid, OneForwardOneBackwardKeepsLastRankBusy) {
  EXPECT_EQ(draw_grid(one_f_one_b({.ranks = 4, .micro_batches = 6})), golden("1f1b_p4_m6.txt"));
}

TEST(Grid, InterleavedHalvesBubbleOfTwoStages) {
  EXPECT_EQ(draw_grid(interleaved({.ranks = 2, .micro_batches = 4, .virtual_stages = 2})),
            golden("interleaved_p2_v2_m4.txt"));
}

TEST(Grid, DrawsHalvesOfBackwards) {
  EXPECT_EQ(draw_grid(zb_h1({.ranks = 4, .micro_batches = 6})), golden("zb-h1_p4_m6.txt"));
  EXPECT_EQ(draw_grid(zb_h2({.ranks = 4, .micro_batches = 6})), golden("zb-h2_p4_m6.txt"));
  EXPECT_EQ(draw_grid(zbv({.ranks = 2, .micro_batches = 4, .virtual_stages = 2})),
            golden("zbv_p2_m4.txt"));
}

TEST(Grid, LoweredProgramsShowOneColumnPerUnit) {
  const Schedule order = one_f_one_b({.ranks = 4, .micro_batches = 6});
  const LowerOptions every_layer{.recompute = LayerSet::all(8)};
  EXPECT_EQ(draw_grid(lower(order, chain_with_skip_and_tie(8), equal_stages(4, 2), every_layer)),
            draw_grid(order));
}

TEST(Grid, MarksUnitAndItsRow) {
  const Schedule schedule = gpipe({.ranks = 2, .micro_batches = 2});
  EXPECT_EQ(draw_grid(schedule, {.marked_rank = 1, .marked_position = 2}),
            "rank 0: F0  F1  .   .   B0  B1\n"
            "rank 1: .   F0  F1  B0* B1  .  <-- ERROR HERE\n");
}

TEST(Grid, CutsWindowAroundMarkAndReportsIt) {
  const Schedule schedule = gpipe({.ranks = 1, .micro_batches = 20});
  EXPECT_EQ(draw_grid(schedule, {.max_columns = 3}),
            "rank 0: F0  F1  F2\n(columns 0 to 2 of 40)\n");
  EXPECT_EQ(draw_grid(schedule, {.marked_rank = 0, .marked_position = 10, .max_columns = 3}),
            "rank 0: F9   F10* F11  <-- ERROR HERE\n(columns 9 to 11 of 40)\n");
}

TEST(Grid, DrawsUnitsThatNeverStart) {
  Schedule schedule = gpipe({.ranks = 2, .micro_batches = 1});
  std::swap(schedule.programs[1][0], schedule.programs[1][1]);
  EXPECT_EQ(draw_grid(schedule), "rank 0: F0 B0\nrank 1: B0 F0\n");
}

TEST(Grid, AlignsRankNumbers) {
  const std::string text = draw_grid(forward_only({.ranks = 11, .micro_batches = 1}));
  EXPECT_EQ(text.substr(0, 12), "rank  0: F0 ");
  EXPECT_NE(text.find("rank 10: .  .  .  .  .  .  .  .  .  .  F0\n"), std::string::npos);
}

TEST(Listing, NumbersActionsAndMarksOne) {
  const Program program = one_f_one_b({.ranks = 1, .micro_batches = 2}).programs[0];
  EXPECT_EQ(list_actions(program, {.marked_position = 1}),
            "0  F s0 m0\n1  B s0 m0  <-- ERROR HERE\n2  F s0 m1\n3  B s0 m1\n");
  EXPECT_EQ(list_actions(program, {.marked_position = 2, .around = 1}),
            "1  B s0 m0\n2  F s0 m1  <-- ERROR HERE\n3  B s0 m1\n");
  EXPECT_EQ(list_actions({}), "");
}

TEST(Listing, ShowsLoweredStepWithSkipTieAndRecompute) {
  const Schedule lowered =
      lower(one_f_one_b({.ranks = 2, .micro_batches = 2}), chain_with_skip_and_tie(4),
            equal_stages(2, 2), {.recompute = {1, 2}});
  EXPECT_EQ("rank 0\n" + list_actions(lowered.programs[0]) + "rank 1\n" +
                list_actions(lowered.programs[1]),
            golden("lowered_1f1b_p2_m2.txt"));
}

}  // namespace
}  // namespace strata
