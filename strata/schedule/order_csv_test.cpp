#include "strata/schedule/order_csv.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/schedule/builders.h"

namespace strata {
namespace {

TEST(OrderCsv, ReadsEveryKindOfCell) {
  const Schedule schedule = read_order(
      "0F0,0F1,,0I0,0W0,0B1\n"
      "1UNSHARD,1RECV_F0, 1F0 ,1SEND_B0,1B0,(1F1;1B1)OVERLAP_F_B\r\n",
      "a.csv");
  EXPECT_EQ(schedule.kind, ScheduleKind::kFile);
  EXPECT_EQ(schedule.num_micro_batches, 2);
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(order_csv(schedule), "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(OrderCsv, WritesWhatItReads) {
  for (const ScheduleKind kind : kBuiltSchedules) {
    if (kind == ScheduleKind::kForward) continue;
    const int fixed = traits_of(kind).stages_per_rank;
    const Schedule built = build_schedule(
        kind, {.ranks = 3, .micro_batches = 5, .virtual_stages = fixed > 0 ? fixed : 2});
    const Schedule read = read_order(order_csv(built), "order");
    EXPECT_EQ(read.programs, built.programs) << name_of(kind);
    EXPECT_EQ(read.rank_of_stage, built.rank_of_stage) << name_of(kind);
    EXPECT_EQ(read.num_micro_batches, 5);
  }
}

void expect_refused(const std::string& csv, const std::string& where, const std::string& what) {
  try {
    read_order(csv, "a.csv");
    ADD_FAILURE() << "accepted: " << csv;
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, where) << csv;
    EXPECT_EQ(error.text().what, what) << csv;
  }
}

TEST(OrderCsv, RefusesWhatIsNoOrder) {
  expect_refused("0F0\n0F1,1F0", "a.csv:2, cell 1", "a stage is on two ranks");
  for (const char* cell :
       {"F0", "0F", "0X1", "0F1x", "-1F0", "0F0F1", "9999999999F0", "0F9999999", "(0F1;0B0"})
    expect_refused(std::string("0F0,") + cell, "a.csv:1, cell 2", "a cell is no action");
  expect_refused("", "a.csv:1", "the order is empty");
  expect_refused("\n , ,\n", "a.csv:1", "the order is empty");
  expect_refused("0F0,2F0", "a.csv:1", "a stage is missing");
  expect_refused("0F0,0F2", "a.csv:1", "a micro-batch is missing");
}

}  // namespace
}  // namespace strata
