#include "strata/report/idle.h"

#include <gtest/gtest.h>

#include <numeric>

#include "strata/report/example_report_test.h"

namespace strata {
namespace {

using Timeline = std::vector<TraceEvent>;

TraceEvent event(Op op, int stage, int micro_batch, double begin, double end) {
  return {op, stage, micro_batch, -1, begin, end};
}

double sum(const TimeSplit& split) {
  return std::accumulate(split.seconds.begin(), split.seconds.end(), 0.0);
}

// Two stages, two micro-batches; times in seconds from 100. The second backward of rank 0 takes one
// second, all others two; the gradients travel for one and two.
//
//   rank 0  ..0011---00---1nuu.
//   rank 1  ..--00001111---nuu.
std::vector<Timeline> two_stages() {
  return {
      {event(Op::kForward, 0, 0, 102, 104), event(Op::kForward, 0, 1, 104, 106),
       event(Op::kReceiveGradient, 0, 0, 106, 109), event(Op::kBackward, 0, 0, 109, 111),
       event(Op::kReceiveGradient, 0, 1, 111, 114), event(Op::kBackward, 0, 1, 114, 115),
       event(Op::kReduceNormAndLoss, -1, -1, 115, 115.5), event(Op::kUpdate, -1, -1, 115.5, 117)},
      {event(Op::kReceiveActivation, 1, 0, 102, 104), event(Op::kForward, 1, 0, 104, 106),
       event(Op::kBackward, 1, 0, 106, 108), event(Op::kReceiveActivation, 1, 1, 108, 108),
       event(Op::kForward, 1, 1, 108, 110), event(Op::kBackward, 1, 1, 110, 112),
       event(Op::kReduceNormAndLoss, -1, -1, 112, 115.5), event(Op::kUpdate, -1, -1, 115.5, 117)}};
}

TEST(AttributeTime, NamesUseOfEveryInterval) {
  const std::vector<TimeSplit> splits = attribute_time(two_stages(), 100, 118);
  ASSERT_EQ(splits.size(), 2u);
  const TimeSplit& first = splits[0];
  EXPECT_EQ(first[TimeUse::kInput], 2);
  EXPECT_EQ(first[TimeUse::kCompute], 7);
  EXPECT_EQ(first[TimeUse::kUpdate], 1.5);
  // Gradient 0, the first, was produced at 108 and arrived at 109, gradient 1 at 112 and 114.
  EXPECT_EQ(first[TimeUse::kFillAndDrain], 2);
  EXPECT_EQ(first[TimeUse::kImbalance], 1);
  EXPECT_EQ(first[TimeUse::kTransfer], 1 + 2);
  EXPECT_EQ(first[TimeUse::kReduction], 0.5);
  EXPECT_EQ(first[TimeUse::kOther], 1);
  EXPECT_EQ(first.idle_seconds(), 2 + 6 + 0.5 + 1);
}

TEST(AttributeTime, CountsWaitForComputingRanksAsDrain) {
  const TimeSplit last = attribute_time(two_stages(), 100, 118)[1];
  // It reached the norm at 112; rank 0 computed until 115.
  EXPECT_EQ(last[TimeUse::kFillAndDrain], 2 + 3);
  EXPECT_EQ(last[TimeUse::kReduction], 0.5);
  EXPECT_EQ(last[TimeUse::kImbalance] + last[TimeUse::kTransfer], 0);
}

TEST(AttributeTime, CountsEveryInstantOnce) {
  for (const TimeSplit& split : attribute_time(two_stages(), 100, 118)) EXPECT_EQ(sum(split), 18);
  const ReportTimeline step = example_step(4, 8, 1.0, 5000);
  for (const TimeSplit& split : attribute_time(step.ranks, 5000, 5000 + step.step_seconds + 0.25)) {
    EXPECT_NEAR(sum(split), step.step_seconds + 0.25, 1e-9);
    EXPECT_NEAR(split[TimeUse::kOther], 0.25, 1e-9);
  }
}

// A step of `seconds.size()` stages with these forward times; backwards take twice as long.
std::vector<TimeSplit> pipeline(bool one_f_one_b, const std::vector<double>& seconds) {
  const ReportTimeline step =
      pipeline_step({.forward_seconds = seconds, .one_f_one_b = one_f_one_b});
  return attribute_time(step.ranks, 0, step.step_seconds);
}

TEST(AttributeTime, EqualStagesHaveNoImbalance) {
  for (const bool one_f_one_b : {false, true}) {
    for (const TimeSplit& split : pipeline(one_f_one_b, {1, 1, 1, 1})) {
      EXPECT_NEAR(split[TimeUse::kFillAndDrain], 3 * (1 + 2), 1e-9) << one_f_one_b;
      EXPECT_NEAR(split.idle_seconds(), 3 * (1 + 2), 1e-9) << one_f_one_b;
    }
  }
}

TEST(AttributeTime, SlowerStageCausesImbalance) {
  for (const bool one_f_one_b : {false, true}) {
    const std::vector<TimeSplit> splits = pipeline(one_f_one_b, {1, 2});
    EXPECT_NEAR(splits[1][TimeUse::kImbalance], 0, 1e-9) << one_f_one_b;
    // The slow stage runs 8 micro-batches, the fast one waits for 7 of them.
    EXPECT_GT(splits[0][TimeUse::kImbalance], 0.5 * 7 * 3) << one_f_one_b;
    EXPECT_NEAR(sum(splits[0]), sum(splits[1]), 1e-9) << one_f_one_b;
  }
}

TEST(AttributeTime, MatchesSenderInSameReplica) {
  // Ranks 0 and 1 hold stage 0, ranks 2 and 3 stage 1; the second replica is three seconds later.
  std::vector<Timeline> ranks(4);
  for (const int replica : {0, 1}) {
    const double late = 3.0 * replica;
    ranks[replica] = {event(Op::kForward, 0, 0, 0, 1), event(Op::kForward, 0, 1, 1, 4 + late)};
    ranks[2 + replica] = {event(Op::kReceiveActivation, 1, 0, 0, 1),
                          event(Op::kForward, 1, 0, 1, 2),
                          event(Op::kReceiveActivation, 1, 1, 2, 5 + late),
                          event(Op::kForward, 1, 1, 5 + late, 6 + late)};
  }
  const std::vector<TimeSplit> splits = attribute_time(ranks, 0, 9);
  EXPECT_EQ(splits[2][TimeUse::kImbalance], 2);
  EXPECT_EQ(splits[2][TimeUse::kTransfer], 1);
  EXPECT_EQ(splits[3][TimeUse::kImbalance], 5);
  EXPECT_EQ(splits[3][TimeUse::kTransfer], 1);
}

TEST(AttributeTime, SeparatesFetchesAndReductionsWithinStep) {
  const std::vector<Timeline> ranks{
      {event(Op::kPrefetchWeights, 0, -1, 0, 1), event(Op::kForward, 0, 0, 1, 2),
       event(Op::kBackward, 0, 0, 2, 3), event(Op::kAwaitGradients, 0, 0, 3, 5),
       event(Op::kForward, 0, 1, 5, 6), event(Op::kSendActivation, 0, 1, 6, 7)},
      {}};
  const TimeSplit split = attribute_time(ranks, 0, 7)[0];
  EXPECT_EQ(split[TimeUse::kTransfer], 1 + 1);
  EXPECT_EQ(split[TimeUse::kReduction], 2);
  EXPECT_EQ(split[TimeUse::kCompute], 3);
}

// The wait for weights from 0 to 10: their update ran from 1 to 4, the copy from 3 to 6, the disk
// read from 5 to 8, and the transfer from peers after that.
TEST(AttributeTime, NamesCauseOfWaitForMemory) {
  const std::vector<Timeline> ranks{
      {event(Op::kPrefetchWeights, 0, 0, 0, 10), event(Op::kForward, 0, 0, 10, 12)}};
  const std::vector<TrackEvent> tracks{
      {TrackKind::kDiskRead, 7, 5, 8}, {TrackKind::kDiskRead, 8, 6.5, 7},  // overlaps with it
      {TrackKind::kUpdate, 1, 1, 2},   {TrackKind::kUpdate, 2, 2, 4},
      {TrackKind::kToDevice, 1, 3, 6}, {TrackKind::kToDevice, 2, 11, 12}};
  for (const bool peers : {false, true}) {
    std::vector<Timeline> all = ranks;
    if (peers) all.push_back(ranks[0]);
    const TimeSplit split = attribute_time(all, 0, 12, {tracks})[0];
    EXPECT_EQ(split[TimeUse::kHostUpdate], 2);
    EXPECT_EQ(split[TimeUse::kLink], 3);
    EXPECT_EQ(split[TimeUse::kDisk], 2);
    EXPECT_EQ(split[peers ? TimeUse::kTransfer : TimeUse::kOther], 1 + 2);
    EXPECT_EQ(split[TimeUse::kCompute], 2);
    EXPECT_EQ(sum(split), 12);
  }
}

TEST(AttributeTime, IgnoresTracksWhileRankWorks) {
  const std::vector<Timeline> ranks{{event(Op::kForward, 0, 0, 0, 4),
                                     event(Op::kOffloadGradients, 0, 0, 4, 6),
                                     event(Op::kReduceNormAndLoss, -1, -1, 6, 8)}};
  const std::vector<TrackEvent> tracks{{TrackKind::kToHost, 0, 1, 5},
                                       {TrackKind::kUpdate, 0, 5, 20}};
  const TimeSplit split = attribute_time(ranks, 0, 8, {tracks})[0];
  EXPECT_EQ(split[TimeUse::kCompute], 4);
  EXPECT_EQ(split[TimeUse::kLink], 1);
  EXPECT_EQ(split[TimeUse::kHostUpdate], 1);
  EXPECT_EQ(split[TimeUse::kReduction], 2);
}

TEST(AttributeTime, OmitsEventsOutsideStep) {
  const std::vector<Timeline> ranks{
      {event(Op::kForward, 0, 0, 8, 12), event(Op::kUpdate, -1, -1, 19, 25)}};
  const TimeSplit split = attribute_time(ranks, 10, 20)[0];
  EXPECT_EQ(split[TimeUse::kCompute], 2);
  EXPECT_EQ(split[TimeUse::kOther], 7);
  EXPECT_EQ(split[TimeUse::kUpdate], 1);
}

TEST(AttributeTime, NamesCauseOfWaitForEmbeddings) {
  const std::vector<Timeline> ranks{
      {event(Op::kPrefetchRows, 0, -1, 0, 1), event(Op::kFetchRows, 0, -1, 1, 4),
       event(Op::kForward, 0, 0, 4, 6), event(Op::kSendRowGradients, 0, -1, 6, 7)}};
  const TimeSplit split = attribute_time(ranks, 0, 7)[0];
  EXPECT_EQ(split[TimeUse::kRows], 1 + 3 + 1);
  EXPECT_EQ(split[TimeUse::kTransfer], 0);
  EXPECT_EQ(sums_of(split).memory_waits, 5);
}

TEST(AttributeTime, AcceptsRankWithoutEvents) {
  const std::vector<TimeSplit> splits =
      attribute_time({{}, {event(Op::kForward, 0, 0, 0, 2)}}, 0, 3);
  EXPECT_EQ(sum(splits[0]), 3);
  EXPECT_EQ(splits[0][TimeUse::kInput], 3);
  EXPECT_EQ(splits[1][TimeUse::kCompute], 2);
  EXPECT_TRUE(attribute_time({}, 0, 1).empty());
}

TEST(LookOf, CountsComputeOperationsAsCompute) {
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_EQ(look_of(op).use == TimeUse::kCompute, is_compute(op)) << kind_of(op);
    EXPECT_EQ(std::string(look_of(op).style) == "send", is_send(op)) << kind_of(op);
  }
}

TEST(TimeUse, NamesEveryValue) {
  EXPECT_STREQ(name_of(TimeUse::kCompute), "compute");
  EXPECT_STREQ(name_of(TimeUse::kFillAndDrain), "fill and drain");
  EXPECT_STREQ(name_of(static_cast<TimeUse>(kNumTimeUses - 1)), "other");
}

TEST(TimeSums, CountEveryUseOnce) {
  TimeSplit split;
  double all = 0;
  for (int use = 0; use < kNumTimeUses; ++use) all += split.seconds[use] = 1 << use;
  const TimeSums sums = sums_of(split);
  const auto bit = [](TimeUse use) { return 1 << static_cast<int>(use); };
  EXPECT_EQ(sums.work, bit(TimeUse::kCompute) + bit(TimeUse::kUpdate));
  EXPECT_EQ(sums.exposed_communication, bit(TimeUse::kTransfer) + bit(TimeUse::kReduction));
  EXPECT_EQ(sums.rank_waits, bit(TimeUse::kFillAndDrain) + bit(TimeUse::kImbalance));
  EXPECT_EQ(sums.launch_waits, bit(TimeUse::kLaunch));
  EXPECT_EQ(sums.work + sums.exposed_communication + sums.rank_waits + sums.memory_waits +
                sums.launch_waits + sums.other,
            all);
}

}  // namespace
}  // namespace strata
