#include "strata/schedule/validator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/layout/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

// A lowered 1F1B step of four layers on two ranks, to be broken in one place by each test.
class Validator : public ::testing::Test {
 protected:
  Dataflow dataflow = chain_with_skip_and_tie(4);
  Partition partition = equal_stages(2, 2);
  Schedule schedule = lower(one_f_one_b({.ranks = 2, .micro_batches = 3}), dataflow, partition, {});

  std::size_t find(int rank, const std::string& text) const {
    const Program& program = schedule.programs[rank];
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (to_string(program[i]) == text) return i;
    }
    ADD_FAILURE() << "no action " << text;
    return 0;
  }
  void erase(int rank, const std::string& text) {
    Program& program = schedule.programs[rank];
    program.erase(program.begin() + static_cast<std::ptrdiff_t>(find(rank, text)));
  }
  // Moves an action to just before another one of its rank.
  void move_before(int rank, const std::string& text, const std::string& target) {
    const Action action = schedule.programs[rank][find(rank, text)];
    erase(rank, text);
    Program& program = schedule.programs[rank];
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(find(rank, target)), action);
  }
  void duplicate(int rank, const std::string& text) {
    Program& program = schedule.programs[rank];
    const std::size_t i = find(rank, text);
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(i), Action(program[i]));
  }
  Action& action(int rank, const std::string& text) {
    return schedule.programs[rank][find(rank, text)];
  }

  ErrorText refusal(const ValidateOptions& options = {}) const {
    try {
      validate(schedule, dataflow, partition, options);
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().operation, "schedule.validate");
      return error.text();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Validator, AcceptsLoweredStepAndCountsActivationsInFlight) {
  const Validation validation =
      validate(schedule, dataflow, partition, {.backward = true, .in_flight_bound = {2, 1}});
  EXPECT_EQ(validation.peak_in_flight, (std::vector<int>{2, 1}));
}

TEST_F(Validator, RejectsDeadlockAndShowsItsCycleAndMarkedGrid) {
  // Rank 1 needs micro-batch 1 before it sends the gradient that rank 0 needs before sending it.
  move_before(0, "SF v1 m1 to rank 1", "B s0 m1 [0,2)");
  move_before(1, "RF v1 m1 from rank 0", "B s1 m0 [2,4)");
  const ErrorText error = refusal();
  EXPECT_EQ(error.what, "deadlock: the ranks wait for one another in a cycle");
  EXPECT_TRUE(contains(
      error.got, "rank 0 waits at position " + std::to_string(find(0, "RB v1<-2 m0 from rank 1")) +
                     " for RB v1<-2 m0 from rank 1; rank 1 waits at position " +
                     std::to_string(find(1, "RF v1 m1 from rank 0")) + " for RF v1 m1 from rank 0"))
      << error.got;
  EXPECT_TRUE(contains(error.got, "rank 0: F0  F1  .   B0* ")) << error.got;
  EXPECT_TRUE(contains(error.got, "RB v1<-2 m0 from rank 1  <-- ERROR HERE")) << error.got;
}

TEST_F(Validator, NamesEveryRankOfLongCycle) {
  dataflow = chain(3);
  dataflow.values.push_back({.name = "skip", .producer = 0, .consumers = {2}});
  partition = equal_stages(3, 1);
  schedule = lower(gpipe({.ranks = 3}), dataflow, partition, {});
  move_before(0, "SF v3 m0 to rank 2", "B s0 m0 [0,1)");
  const ErrorText error = refusal();
  EXPECT_TRUE(contains(error.got,
                       "rank 0 waits at position 2 for RB v0<-1 m0 from rank 1; "
                       "rank 1 waits at position 3 for RB v1<-2 m0 from rank 2; "
                       "rank 2 waits at position 1 for RF v3 m0 from rank 0\n"))
      << error.got;
}

TEST_F(Validator, OmitsRanksOutsideTheCycle) {
  dataflow = chain(3);
  partition = equal_stages(3, 1);
  schedule = lower(gpipe({.ranks = 3, .micro_batches = 2}), dataflow, partition, {});
  move_before(0, "SF v0 m1 to rank 1", "B s0 m0 [0,1)");
  const ErrorText error = refusal();
  EXPECT_TRUE(contains(error.got,
                       "rank 0 waits at position 3 for RB v0<-1 m0 from rank 1; "
                       "rank 1 waits at position 3 for RF v0 m1 from rank 0\n"))
      << error.got;
}

TEST_F(Validator, RejectsSendOutOfOrder) {
  move_before(0, "SF v1 m1 to rank 1", "F s0 m1 [0,2)");
  const ErrorText error = refusal();
  EXPECT_EQ(error.what, "a message is sent before it is made");
  EXPECT_TRUE(contains(error.expected, "forward of layer 1, micro-batch 1")) << error.expected;
  EXPECT_TRUE(contains(error.where, "1f1b, rank 0, position 3")) << error.where;
  EXPECT_TRUE(contains(error.got, "SF v1 m1 to rank 1  <-- ERROR HERE")) << error.got;
}

TEST_F(Validator, RejectsGradientSentBeforeItsBackward) {
  move_before(1, "SB v1<-2 m2 to rank 0", "B s1 m2 [2,4)");
  EXPECT_TRUE(contains(refusal().expected, "backward of layer 2, micro-batch 2"));
}

TEST_F(Validator, AcceptsSendsInDifferentOrderThanReceives) {
  move_before(0, "SF v1 m0 to rank 1", "SF v4 m0 to rank 1");
  move_before(1, "RF v1 m1 from rank 0", "RF v4 m1 from rank 0");
  EXPECT_NO_THROW(validate(schedule, dataflow, partition, {}));
}

TEST_F(Validator, RejectsReceiveWithoutSendAndSendWithoutReceive) {
  const Schedule whole = schedule;
  erase(0, "SF v4 m2 to rank 1");
  EXPECT_EQ(refusal().what, "a receive has no send");
  EXPECT_TRUE(contains(refusal().got, "RF v4 m2 from rank 0"));

  schedule = whole;
  schedule.programs[1].pop_back();
  EXPECT_EQ(refusal().what, "a send has no receive");
  EXPECT_TRUE(contains(refusal().got, "SW t0->3 to rank 1  <-- ERROR HERE"));
}

TEST_F(Validator, RejectsMessageSentOrReceivedTwice) {
  const Schedule whole = schedule;
  duplicate(0, "SF v1 m1 to rank 1");
  EXPECT_EQ(refusal().what, "a message is sent twice");
  schedule = whole;
  duplicate(1, "RF v1 m1 from rank 0");
  EXPECT_EQ(refusal().what, "a message is received twice");
}

TEST_F(Validator, RejectsStepWithAnyActionMissing) {
  const Schedule whole = schedule;
  for (int rank = 0; rank < whole.num_ranks(); ++rank) {
    for (std::size_t i = 0; i < whole.programs[rank].size(); ++i) {
      schedule = whole;
      Program& program = schedule.programs[rank];
      program.erase(program.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW(validate(schedule, dataflow, partition, {}), UserError)
          << "rank " << rank << " without " << to_string(whole.programs[rank][i]);
    }
  }
}

TEST_F(Validator, RejectsMessagesThatModelDoesNotHave) {
  const Schedule whole = schedule;
  action(0, "SF v1 m1 to rank 1").value = 9;
  EXPECT_EQ(refusal().expected, "a value of this model");
  schedule = whole;
  action(0, "RB v1<-2 m1 from rank 1").consumer = 3;
  EXPECT_EQ(refusal().expected, "a consumer of the value");
  schedule = whole;
  action(0, "SF v1 m1 to rank 1").peer = 0;
  EXPECT_EQ(refusal().expected, "another rank of this schedule as its peer");
  schedule = whole;
  action(0, "SF v1 m1 to rank 1").micro_batch = 3;
  EXPECT_EQ(refusal().expected, "a micro-batch of this schedule");
}

TEST_F(Validator, RejectsWeightGradientsOutOfAscendingOrder) {
  dataflow = chain(2);
  partition = {{0, 2}};
  schedule = lower(gpipe({.ranks = 1, .micro_batches = 2}), dataflow, partition, {});
  std::swap(schedule.programs[0][2], schedule.programs[0][3]);
  const ErrorText error = refusal();
  EXPECT_EQ(error.what, "weight gradients accumulate out of ascending micro-batch order");
  EXPECT_EQ(error.expected, "backward of layer 1, micro-batch 0 next");
  EXPECT_TRUE(contains(error.got, "rank 0: F0  F1  B1* B0  <-- ERROR HERE")) << error.got;
}

TEST_F(Validator, RejectsComputeWithoutInput) {
  const Schedule whole = schedule;
  move_before(1, "F s1 m0 [2,4)", "RF v4 m0 from rank 0");
  EXPECT_TRUE(contains(refusal().expected, "value v4 made here or received before"));
  schedule = whole;
  move_before(0, "B s0 m0 [0,2)", "RB v4<-2 m0 from rank 1");
  EXPECT_TRUE(contains(refusal().expected, "gradient of value v4 from layer 2"));
}

TEST_F(Validator, RejectsRepeatedMissingOrMisplacedCompute) {
  const Schedule whole = schedule;
  duplicate(0, "F s0 m1 [0,2)");
  EXPECT_EQ(refusal().what, "a forward runs twice");
  schedule = whole;
  duplicate(1, "B s1 m1 [2,4)");
  EXPECT_EQ(refusal().what, "a backward has no forward");
  schedule = whole;
  action(1, "F s1 m0 [2,4)").stage = 0;
  EXPECT_EQ(refusal().what, "a rank computes a stage that is not its own");
  schedule = whole;
  action(1, "F s1 m0 [2,4)").layers = {1, 4};
  EXPECT_EQ(refusal().what, "the layers are not those of the stage");
  schedule = whole;
  action(1, "F s1 m0 [2,4)").micro_batch = 7;
  EXPECT_EQ(refusal().what, "there is no such micro-batch");
  schedule = whole;
  schedule.programs[0].insert(
      schedule.programs[0].begin(),
      {.op = Op::kRecompute, .stage = 0, .micro_batch = 0, .layers = {0, 1}});
  EXPECT_EQ(refusal().what, "a recompute is out of place");
}

TEST_F(Validator, RejectsUnfinishedStep) {
  partition = {{0, 4}};
  schedule = with_layers(gpipe({.ranks = 1, .micro_batches = 2}), partition);
  schedule.programs[0].pop_back();
  const ErrorText error = refusal();
  EXPECT_EQ(error.what, "the step ends unfinished");
  EXPECT_EQ(error.expected, "backward of layer 0, micro-batch 1");
}

TEST_F(Validator, RejectsMoreActivationsInFlightThanBound) {
  const ErrorText error = refusal({.backward = true, .in_flight_bound = {1, 1}});
  EXPECT_EQ(error.what, "too many activations are in flight");
  EXPECT_TRUE(contains(error.where, "rank 0, position 3 \"F s0 m1 [0,2)\"")) << error.where;
}

TEST_F(Validator, RequiresNormOnAllRanks) {
  const Schedule whole = schedule;
  erase(1, "N");
  erase(1, "U [2,3)");
  erase(1, "U [3,4)");
  EXPECT_EQ(refusal().what, "a rank takes no part in the norm");
  schedule = whole;
  move_before(0, "TG t0", "RG t0<-3 from rank 1");
  EXPECT_EQ(refusal().what, "tied gradients are added before one of them is there");
  schedule = whole;
  erase(0, "TG t0");
  EXPECT_EQ(refusal().what, "the norm is computed before tied gradients are added");
  schedule = whole;
  move_before(1, "N", "SG t0<-3 to rank 0");
  const ErrorText error = refusal();
  EXPECT_TRUE(contains(error.got, "for RG t0<-3 from rank 1; rank 1 waits at position"))
      << error.got;
  EXPECT_TRUE(contains(error.got, "for N with rank 0")) << error.got;
}

TEST_F(Validator, RequiresShardedWeightsAndGradientsWhenUsed) {
  const LayerShards ends{.states = true, .reduced = true};
  const LayerShards inner{.states = true, .gradients = true, .weights = true, .reduced = true};
  const ShardLayout shards{.layers = {ends, inner, inner, ends}};
  schedule =
      lower(one_f_one_b({.ranks = 2, .micro_batches = 3}), dataflow, partition, {.shards = shards});
  const ValidateOptions options{.shards = shards};
  const Schedule whole = schedule;
  EXPECT_NO_THROW(validate(schedule, dataflow, partition, options));
  erase(0, "FW [1,2)");
  EXPECT_EQ(refusal(options).what, "a layer runs without its weights");
  schedule = whole;
  schedule.programs[0].insert(schedule.programs[0].begin(),
                              {.op = Op::kPrefetchWeights, .layers = {1, 2}});
  EXPECT_EQ(refusal(options).what, "weights are fetched twice");
  schedule = whole;
  schedule.programs[0].insert(schedule.programs[0].begin(),
                              {.op = Op::kPrefetchWeights, .layers = {0, 1}});
  EXPECT_EQ(refusal(options).what, "weights are fetched that are already on the device");
  schedule = whole;
  erase(1, "DG [2,3)");
  EXPECT_EQ(refusal(options).what, "a reduction is awaited that was not started");
  schedule = whole;
  erase(1, "AG [2,3)");
  EXPECT_EQ(refusal(options).what, "the norm is computed before gradients are reduced");
  schedule = whole;
  move_before(0, "DG [0,1)", "TG t0");
  EXPECT_EQ(refusal(options).what, "a gradient is reduced before tied gradients are added to it");
  schedule = whole;
  move_before(1, "DG [2,3)", "B s1 m2 [2,3)");
  EXPECT_EQ(refusal(options).what, "a gradient is used before it is complete");
  schedule = whole;
  move_before(0, "GW [0,1)", "U [0,1)");
  EXPECT_EQ(refusal(options).what, "weights are exchanged before they are updated");
}

TEST_F(Validator, RequiresGradientsOnHostForHostUpdate) {
  const LayerTiers on_host{Tier::kHost, Tier::kHost, Tier::kHost};
  const TierLayout tiers{.layers = {{}, on_host, on_host, {}}};
  schedule =
      lower(one_f_one_b({.ranks = 2, .micro_batches = 3}), dataflow, partition, {.tiers = tiers});
  const ValidateOptions options{.tiers = tiers};
  const Schedule whole = schedule;
  EXPECT_NO_THROW(validate(schedule, dataflow, partition, options));
  erase(0, "FW [1,2)");
  EXPECT_EQ(refusal(options).what, "a layer runs without its weights");
  schedule = whole;
  erase(1, "OG [2,3)");
  EXPECT_EQ(refusal(options).what, "a gradient is used before it is on the host");
  schedule = whole;
  move_before(1, "OG [2,3)", "B s1 m2 [2,3)");
  EXPECT_EQ(refusal(options).what, "a gradient is used before it is complete");
  schedule = whole;
  move_before(1, "U [2,3)", "N");
  EXPECT_EQ(refusal(options).what, "an update is out of place");
}

TEST_F(Validator, RequiresUpdateAfterNormAndTiedWeightsReturned) {
  const Schedule whole = schedule;
  move_before(0, "U [0,1)", "N");
  EXPECT_EQ(refusal().what, "an update is out of place");
  schedule = whole;
  move_before(0, "SW t0->3 to rank 1", "U [0,1)");
  EXPECT_EQ(refusal().what, "a tied weight leaves before its update");
  schedule = whole;
  erase(1, "U [2,3)");
  EXPECT_EQ(refusal().what, "not every layer is updated");
  schedule = whole;
  for (Action& action : schedule.programs[1])
    if (action.op == Op::kUpdate) action.layers = {2, 3};
  EXPECT_EQ(refusal().what, "an update is out of place");
  schedule = whole;
  for (Action& action : schedule.programs[1])
    if (action.op == Op::kUpdate && action.layers.begin == 2) action.layers = {1, 2};
  EXPECT_EQ(refusal().what, "an update is out of place");
  schedule = whole;
  erase(0, "SW t0->3 to rank 1");
  erase(1, "RW t0->3 from rank 0");
  EXPECT_EQ(refusal().what, "a tied weight does not come back");
  schedule = whole;
  move_before(1, "SG t0<-3 to rank 0", "B s1 m2 [2,4)");
  EXPECT_EQ(refusal().what, "a gradient is used before it is complete");
}

TEST_F(Validator, ForwardOnlyStepsHoldOneActivation) {
  schedule =
      lower(forward_only({.ranks = 2, .micro_batches = 3}), dataflow, partition, {.update = false});
  EXPECT_EQ(validate(schedule, dataflow, partition, {.backward = false}).peak_in_flight,
            (std::vector<int>{1, 1}));
  EXPECT_EQ(refusal().what, "the step ends unfinished");
  schedule = lower(gpipe({.ranks = 2, .micro_batches = 3}), dataflow, partition, {});
  EXPECT_EQ(refusal({.backward = false}).what, "a forward-only schedule has a backward");
}

// The same step with its backwards in halves.
class ValidatorOfHalves : public Validator {
 protected:
  void SetUp() override {
    schedule = lower(zb_h1({.ranks = 2, .micro_batches = 3}), dataflow, partition, {});
  }
};

TEST_F(ValidatorOfHalves, AcceptsThem) {
  EXPECT_EQ(validate(schedule, dataflow, partition, {}).peak_in_flight, (std::vector<int>{2, 1}));
}

TEST_F(ValidatorOfHalves, RejectsASecondHalfBeforeItsFirst) {
  move_before(1, "W s1 m0 [2,4)", "I s1 m0 [2,4)");
  EXPECT_EQ(refusal().what, "the second half of a backward is out of place");
}

TEST_F(ValidatorOfHalves, RejectsASecondHalfTwice) {
  duplicate(1, "W s1 m0 [2,4)");
  EXPECT_EQ(refusal().what, "the second half of a backward is out of place");
}

TEST_F(ValidatorOfHalves, RejectsHalvesOutOfMicroBatchOrder) {
  action(1, "W s1 m0 [2,4)").micro_batch = 1;
  EXPECT_EQ(refusal().what, "weight gradients accumulate out of ascending micro-batch order");
}

TEST_F(ValidatorOfHalves, RejectsAMissingSecondHalf) {
  erase(1, "W s1 m2 [2,4)");
  EXPECT_EQ(refusal().what, "a gradient is used before it is complete");
}

// The sum would contain what the first half of micro-batch 1 has added.
TEST_F(ValidatorOfHalves, RejectsAReductionBetweenTheHalvesOfALaterMicroBatch) {
  const std::size_t place = find(1, "W s1 m0 [2,4)") + 1;
  Program& program = schedule.programs[1];
  program.insert(program.begin() + static_cast<std::ptrdiff_t>(place),
                 {.op = Op::kReduceGradients, .micro_batch = 0, .layers = {2, 3}});
  EXPECT_EQ(refusal().what, "a gradient is reduced that is not the last one made");
}

}  // namespace
}  // namespace strata
