// Runs schedules on ranks whose layers take a fixed time, and compares the order of all ranks' work
// and the time of a step with the simulation of the same costs.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "strata/comm/ranks.h"
#include "strata/nn/graph/deferred_gradients.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/simulate/simulator.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

// Long compared with what a rank does besides, short enough for many of them.
constexpr double kForward = 0.012, kInputs = 0.012, kWeights = 0.009;

void pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Timed : torch::autograd::Function<Timed> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            const at::Tensor& weight, bool loss) {
    pass(kForward);
    return loss ? at::zeros({}, x.options()) : x + weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    pass(kInputs);
    add_weight_gradients([] { pass(kWeights); });
    return {gradients[0].expand({1, 1}).contiguous(), {}, {}};
  }
};

class TimedLayer final : public Layer {
 public:
  explicit TimedLayer(bool loss) : loss_(loss) {}
  std::vector<WeightSpec> weights() const override { return {{.name = "weight", .shape = {1}}}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {loss_ ? TensorSpec{.shape = {}} : TensorSpec{.shape = {1, 1}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {Timed::apply(inputs[0], weights[0], loss_)};
  }
  bool is_loss() const override { return loss_; }

 private:
  bool loss_;
};

// Makes the first value, which has a gradient. Takes no time.
class Source final : public Layer {
 public:
  std::vector<WeightSpec> weights() const override { return {{.name = "weight", .shape = {1, 1}}}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {1, 1}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    return {inputs[0] + weights[0]};
  }
};

struct Order {
  ScheduleKind schedule;
  int ranks;
};

std::ostream& operator<<(std::ostream& out, const Order& order) {
  return out << name_of(order.schedule) << " on " << order.ranks << " ranks";
}

class ScheduleOrder : public ::testing::TestWithParam<Order> {
 protected:
  const Order& order = GetParam();
  const int stages = order.ranks * tested_stages(order.schedule);
  const int micro_batches = 2 * order.ranks;

  // One timed layer a stage, and the source on the first.
  Sequential model() const {
    Sequential model({"x"});
    model.add("source", std::make_shared<Source>(), {"x"}, {"y"});
    for (int stage = 0; stage < stages; ++stage)
      model.add("timed" + std::to_string(stage), std::make_shared<TimedLayer>(stage + 1 == stages),
                {"y"}, {"y"});
    return model;
  }
  StepPlan plan(const Sequential& model) const {
    StepDecisions decisions{.schedule = order.schedule,
                            .mesh = {{Axis::kPipeline, order.ranks}},
                            .virtual_stages = tested_stages(order.schedule)};
    for (int stage = 0; stage <= stages; ++stage)
      decisions.partition.bounds.push_back(stage == 0 ? 0 : stage + 1);
    return plan_steps(model, std::move(decisions));
  }
  Simulation simulated(const StepPlan& plan) const {
    CostTable costs;
    for (int layer = 0; layer <= stages; ++layer) {
      if (layer == 0) {
        costs.layers.push_back({.name = "source"});
      } else {
        costs.layers.push_back({.name = "timed",
                                .forward_seconds = kForward,
                                .backward_seconds = kInputs + kWeights,
                                .weight_seconds = kWeights});
      }
    }
    costs.values.resize(plan.dataflow().values.size());
    return simulate(plan.training(micro_batches), plan.dataflow(), plan.decisions().partition,
                    costs);
  }
  std::vector<std::vector<TraceEvent>> measured(const Sequential& model, const StepPlan& plan,
                                                double& seconds) const {
    std::vector<std::vector<TraceEvent>> events(order.ranks);
    const MiniBatch batch{.inputs = {at::ones({micro_batches, 1})},
                          .samples = micro_batches,
                          .valid_tokens = micro_batches};
    run_thread_ranks({.ranks = order.ranks}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, {});
      trainer.initialise();
      trainer.step(batch, 1e-3);
      trainer.trace().clear();
      group.barrier();
      const double begin = now_seconds();
      trainer.step(batch, 1e-3);
      if (group.rank() == 0) seconds = now_seconds() - begin;
      events[group.rank()] = trainer.trace().events();
    });
    return events;
  }
};

// The begin of each computation of a stage.
std::map<std::tuple<Op, int, int>, double> begins_of(const std::vector<TraceEvent>& events) {
  std::map<std::tuple<Op, int, int>, double> begins;
  for (const TraceEvent& event : events)
    if (is_compute(event.op))
      begins.emplace(std::tuple(event.op, event.stage, event.micro_batch), event.begin_seconds);
  return begins;
}

TEST_P(ScheduleOrder, IsTheSimulatedOne) {
  const Sequential model = this->model();
  const StepPlan plan = this->plan(model);
  const Simulation expected = simulated(plan);
  double seconds = 0;
  const auto events = measured(model, plan, seconds);
#ifndef STRATA_SANITIZED
  // Other work on the machine can only lengthen a step.
  EXPECT_GE(seconds, 0.98 * expected.step_seconds);
  EXPECT_LE(seconds, 1.6 * expected.step_seconds + 0.2);
#endif
  // What the simulation begins later by at least one computation, the ranks begin later.
  std::vector<std::pair<double, double>> begins;  // simulated, measured
  for (int rank = 0; rank < order.ranks; ++rank) {
    const auto simulated = begins_of(expected.ranks[rank].events);
    const auto run = begins_of(events[rank]);
    ASSERT_EQ(simulated.size(), run.size()) << "rank " << rank;
    for (const auto& [key, begin] : simulated) {
      ASSERT_TRUE(run.contains(key)) << "rank " << rank;
      begins.emplace_back(begin, run.at(key));
    }
  }
  std::ranges::sort(begins);
  int pairs = 0, swapped = 0;
  for (std::size_t a = 0; a < begins.size(); ++a)
    for (std::size_t b = a + 1; b < begins.size(); ++b)
      if (begins[b].first - begins[a].first > 2 * kForward) {
        ++pairs;
        swapped += begins[b].second <= begins[a].second;
      }
  EXPECT_GT(pairs, 0);
  EXPECT_LE(swapped, pairs / 20);
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, ScheduleOrder,
    ::testing::Values(Order{ScheduleKind::k1f1b, 4}, Order{ScheduleKind::kInterleaved, 4},
                      Order{ScheduleKind::kZbH1, 2}, Order{ScheduleKind::kZbH1, 4},
                      Order{ScheduleKind::kZbH1, 8}, Order{ScheduleKind::kZbH2, 2},
                      Order{ScheduleKind::kZbH2, 4}, Order{ScheduleKind::kZbH2, 8},
                      Order{ScheduleKind::kZbv, 2}, Order{ScheduleKind::kZbv, 4},
                      Order{ScheduleKind::kZbv, 8}, Order{ScheduleKind::kVHalf, 4},
                      Order{ScheduleKind::kVMin, 4}, Order{ScheduleKind::kDualPipeV, 4}));

}  // namespace
}  // namespace strata
