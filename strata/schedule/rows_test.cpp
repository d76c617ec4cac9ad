// Tests where the pass reads embeddings and sends their gradients, and what the validator rejects.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

Dataflow reads_rows(int num_layers, int layer) {
  Dataflow dataflow = chain(num_layers);
  dataflow.rows_layer = layer;
  return dataflow;
}

std::vector<std::string> lines(const Program& program) {
  std::vector<std::string> texts;
  for (const Action& action : program) texts.push_back(to_string(action));
  return texts;
}

TEST(Rows, AreReadFirstAndSentAfterLastBackward) {
  const Dataflow dataflow = reads_rows(4, 1);
  const Schedule schedule =
      lower(build_schedule(ScheduleKind::kGpipe, {1, 2}), dataflow, {{0, 4}}, {.recompute = {1}});
  EXPECT_EQ(
      lines(schedule.programs[0]),
      (std::vector<std::string>{"PR [1,2)", "FR [1,2)", "F s0 m0 [0,4)", "F s0 m1 [0,4)",
                                "B s0 m0 [2,4)", "R s0 m0 [1,2)", "B s0 m0 [1,2)", "B s0 m0 [0,1)",
                                "B s0 m1 [2,4)", "R s0 m1 [1,2)", "B s0 m1 [1,2)", "SR [1,2)",
                                "B s0 m1 [0,1)", "N", "U [0,1)", "U [1,2)", "U [2,3)", "U [3,4)"}));
  EXPECT_NO_THROW(validate(schedule, dataflow, {{0, 4}}, {}));
}

TEST(Rows, AreOnlyReadInForwardOnlyPrograms) {
  const Dataflow dataflow = reads_rows(2, 0);
  const Schedule schedule = lower(build_schedule(ScheduleKind::kForward, {2, 2}), dataflow,
                                  equal_stages(2, 1), {.update = false});
  EXPECT_EQ(lines(schedule.programs[0])[0], "FR [0,1)");
  for (const Program& program : schedule.programs)
    for (const Action& action : program)
      EXPECT_TRUE(action.op != Op::kPrefetchRows && action.op != Op::kSendRowGradients);
  EXPECT_NO_THROW(validate(schedule, dataflow, equal_stages(2, 1), {.backward = false}));
}

TEST(Rows, EveryScheduleIsLegalAndMovesEmbeddingsOnOneRankOnce) {
  for (const auto& [kind, ranks, virtual_stages] :
       {std::tuple(ScheduleKind::kGpipe, 2, 1), std::tuple(ScheduleKind::k1f1b, 4, 1),
        std::tuple(ScheduleKind::kInterleaved, 2, 2), std::tuple(ScheduleKind::kVertical, 1, 1)}) {
    const int stages = ranks * virtual_stages;
    for (const int layer : {0, 5}) {
      const Dataflow dataflow = reads_rows(8, layer);
      const Partition partition = equal_stages(stages, 8 / stages);
      const Schedule schedule = lower(build_schedule(kind, {ranks, 3, virtual_stages}), dataflow,
                                      partition, {.recompute = {layer}});
      EXPECT_NO_THROW(validate(schedule, dataflow, partition, {})) << name_of(kind);
      for (const Op op : {Op::kPrefetchRows, Op::kFetchRows, Op::kSendRowGradients}) {
        std::ptrdiff_t count = 0;
        for (const Program& program : schedule.programs)
          count += std::ranges::count(program, op, &Action::op);
        EXPECT_EQ(count, 1) << name_of(kind) << ' ' << kind_of(op);
      }
    }
  }
}

// Breaks a legal program and returns the validator's error.
std::string refusal(const std::function<void(Program&)>& spoil) {
  const Dataflow dataflow = reads_rows(3, 1);
  Schedule schedule = lower(build_schedule(ScheduleKind::kGpipe, {1, 2}), dataflow, {{0, 3}}, {});
  spoil(schedule.programs[0]);
  try {
    validate(schedule, dataflow, {{0, 3}}, {});
  } catch (const UserError& error) {
    return error.text().what;
  }
  return "";
}

Program::iterator at(Program& program, Op op) {
  return std::ranges::find(program, op, &Action::op);
}

TEST(Rows, ValidatorRejectsMisplacedActions) {
  EXPECT_EQ(refusal([](Program&) {}), "");
  EXPECT_EQ(refusal([](Program& p) { p.erase(at(p, Op::kPrefetchRows)); }),
            "rows are moved out of place");
  EXPECT_EQ(refusal([](Program& p) { p.erase(at(p, Op::kFetchRows)); }),
            "a forward runs without its rows");
  EXPECT_EQ(refusal([](Program& p) { p.erase(at(p, Op::kSendRowGradients)); }),
            "the step ends with rows that are not updated");
  EXPECT_EQ(
      refusal([](Program& p) { p.insert(at(p, Op::kReduceNormAndLoss), *at(p, Op::kFetchRows)); }),
      "rows are moved out of place");
  EXPECT_EQ(refusal([](Program& p) {
              const auto sent = at(p, Op::kSendRowGradients);
              std::iter_swap(sent, sent - 1);
            }),
            "a gradient is used before it is complete");
}

}  // namespace
}  // namespace strata
