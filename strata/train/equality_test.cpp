// Cutting, scheduling and recomputing a model must not change one bit of what it learns.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>

#include "strata/base/units.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

// libgomp isn't instrumented: what two of its threads do looks like a race to a sanitizer.
#ifdef STRATA_SANITIZED
constexpr int kMatrixSteps = 2;
constexpr int kLearningSteps = 2;
constexpr int kMaxThreads = 1;
#else
constexpr int kMatrixSteps = 8;
constexpr int kLearningSteps = 20;
constexpr int kMaxThreads = 2;
#endif

// `make test-long` runs the matrix for more steps.
int matrix_steps() {
  const char* steps = std::getenv("STRATA_EQUALITY_STEPS");
  return steps ? std::stoi(steps) : kMatrixSteps;
}

constexpr std::int64_t kMiniBatch = 8;

// The settings that vary. The reference shares the micro-batches and the model; all other settings
// must not change a bit.
struct Case {
  int stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;
  std::string recompute = "cheap";
  int threads = 1;
  bool even = true;
  bool tie = true;
  bool skip = false;
  int steps = matrix_steps();

  std::string reference() const {
    return std::to_string(steps) + " steps, " + (even ? "even" : "uneven") +
           (tie ? " tied" : " untied") + (skip ? " skip" : "");
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.stages << " stages, " << name_of(c.schedule) << ", recompute " << c.recompute
             << ", " << c.threads << " threads, " << c.reference();
}

struct Record {
  std::vector<std::string> loss_bits;
  std::vector<std::string> norm_bits;
  std::map<std::string, at::Tensor> weights;
};

Sequential model_of(const Case& c) {
  return make_gpt({.layers = 6,
                   .width = 32,
                   .heads = 2,
                   .vocab = 48,
                   .context = 32,
                   .dropout = 0.1,
                   .tie = c.tie,
                   .skip = c.skip});
}

// Each token determines the next, so that a few steps reduce the loss on any processor.
MiniBatch batch_of(int step) {
  const at::Tensor text = at::empty({kMiniBatch, 33}, at::kLong);
  for (std::int64_t sample = 0; sample < kMiniBatch; ++sample) {
    std::int64_t* tokens = text[sample].data_ptr<std::int64_t>();
    tokens[0] = (7 * sample + 13 * step) % 48;
    for (int i = 1; i < 33; ++i) tokens[i] = (5 * tokens[i - 1] + 11) % 48;
  }
  MiniBatch batch{
      .inputs = {text.narrow(1, 0, 32).contiguous(), text.narrow(1, 1, 32).contiguous()},
      .samples = kMiniBatch};
  batch.inputs[1][1].narrow(0, 0, 5).fill_(kIgnoredTarget);
  batch.valid_tokens = kMiniBatch * 32 - 5;
  return batch;
}

// Even stages; for "mixed", layers compute different things again, as a tight budget would choose.
StepPlan plan_of(const Case& c, const Sequential& model) {
  const int virtual_stages = tested_stages(c.schedule);
  const int stages = c.stages * virtual_stages;
  StepDecisions decisions{.schedule = c.schedule,
                          .virtual_stages = virtual_stages,
                          .levels = tested_levels(c.recompute, model.num_layers()),
                          .micro_batch = c.even ? 2 : 3};
  for (int stage = 0; stage <= stages; ++stage)
    decisions.partition.bounds.push_back(model.num_layers() * stage / stages);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const bool chosen = c.recompute == "full" || (c.recompute == "mixed" && layer % 2 == 0);
    if (chosen && model.layer(layer).recomputable()) decisions.recompute.add(layer);
  }
  if (c.schedule == ScheduleKind::kZb)
    decisions.order = std::make_shared<const Schedule>(
        zb_h1({.ranks = c.stages, .micro_batches = static_cast<int>(kMiniBatch / 2)}));
  return plan_steps(model, std::move(decisions));
}

// `before_step`: every rank calls it.
void train(const Case& c, const Sequential& model, const StepPlan& plan, Record& result,
           const std::function<void(int step, Group& group)>& before_step = {}) {
  const TrainerOptions options{.machine = {.seed = 5, .clip = 0.5},
                               .optimizer = {.learning_rate = 1e-2}};
  std::mutex mutex;
  run_thread_ranks({.ranks = c.stages, .threads_per_rank = c.threads},
                   [&](Group& group, MemoryAccount&) {
                     Trainer trainer(model, plan, group, options);
                     trainer.initialise();
                     for (int step = 0; step < c.steps; ++step) {
                       if (before_step) before_step(step, group);
                       const StepOutcome& outcome = trainer.step(batch_of(step), 1e-2);
                       if (group.rank() > 0) continue;
                       result.loss_bits.push_back(format_hex(outcome.loss));
                       result.norm_bits.push_back(format_hex(outcome.gradient_norm));
                     }
                     const std::lock_guard lock(mutex);
                     for (const NamedState& weight : trainer.weights())
                       result.weights[weight.name] = weight.tensor().clone();
                   });
}

Record run_case(const Case& c) {
  const Sequential model = model_of(c);
  Record result;
  train(c, model, plan_of(c, model), result);
  return result;
}

void expect_same(const Record& run, const Record& reference) {
  ASSERT_EQ(run.loss_bits, reference.loss_bits);
  ASSERT_EQ(run.norm_bits, reference.norm_bits);
  ASSERT_EQ(run.weights.size(), reference.weights.size());
  for (const auto& [name, weight] : reference.weights)
    ASSERT_TRUE(at::equal(run.weights.at(name), weight)) << name;
}

// One rank, GPipe order, no recompute: the simplest way to accumulate gradients.
const Record& reference_of(const Case& c) {
  static std::map<std::string, Record> references;
  const auto known = references.find(c.reference());
  if (known != references.end()) return known->second;
  Case plain = c;
  plain.stages = 1;
  plain.schedule = ScheduleKind::kGpipe;
  plain.recompute = "none";
  plain.threads = 1;
  return references.emplace(c.reference(), run_case(plain)).first->second;
}

class BitEquality : public ::testing::TestWithParam<std::tuple<bool, bool, bool>> {};

TEST_P(BitEquality, HoldsForEveryMeshScheduleAndRecompute) {
  const auto [even, tie, skip] = GetParam();
  for (const int stages : {1, 2, 3, 4})
    for (const ScheduleKind schedule :
         {ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kInterleaved})
      for (const char* recompute : {"none", "cheap", "full", "mixed"})
        for (int threads = 1; threads <= kMaxThreads; ++threads) {
          const Case c{stages, schedule, recompute, threads, even, tie, skip};
          SCOPED_TRACE(c);
          expect_same(run_case(c), reference_of(c));
          if (HasFatalFailure()) return;
        }
}

TEST_P(BitEquality, HoldsForBackwardsInHalves) {
  const auto [even, tie, skip] = GetParam();
  for (const int stages : {1, 2, 3, 4})
    for (const ScheduleKind schedule :
         {ScheduleKind::kZbH1, ScheduleKind::kZbH2, ScheduleKind::kZbv, ScheduleKind::kVHalf,
          ScheduleKind::kVMin, ScheduleKind::kDualPipeV})
      for (const char* recompute : {"none", "mixed"}) {
        const Case c{stages, schedule, recompute, 1, even, tie, skip};
        SCOPED_TRACE(c);
        expect_same(run_case(c), reference_of(c));
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(All, BitEquality,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()));

// A searched schedule may change its order while a run goes on.
TEST(BitEqualityOfOrders, HoldsWhenTheOrderChangesBetweenSteps) {
  const Case c{.stages = 3, .schedule = ScheduleKind::kZb};
  const Sequential model = model_of(c);
  const StepPlan plan = plan_of(c, model);
  const PipelineShape shape{.ranks = 3, .micro_batches = 4};
  Record run;
  train(c, model, plan, run, [&](int step, Group& group) {
    group.barrier();
    if (step % 2 == 1) plan.reorder(step % 4 == 1 ? zb_h2(shape) : one_f_one_b(shape));
    group.barrier();
  });
  expect_same(run, reference_of(c));
}

TEST(BitEqualityReference, LearnsAndIsSensitive) {
  const Case c{.steps = kLearningSteps};
  const Record& reference = reference_of(c);
  const double first = std::stod(reference.loss_bits.front()),
               last = std::stod(reference.loss_bits.back());
  EXPECT_NEAR(first, std::log(48.0), 0.1);
  if (c.steps > 10) {
    EXPECT_LT(last, first - 0.5);
  }
  // Other micro-batches add in another order, so the comparison can fail.
  Case uneven = c;
  uneven.even = false;
  EXPECT_NE(reference_of(uneven).weights.begin()->second.data_ptr(), nullptr);
  EXPECT_FALSE(at::equal(reference_of(uneven).weights.at("block0.mlp.up.weight"),
                         reference.weights.at("block0.mlp.up.weight")));
}

}  // namespace
}  // namespace strata
