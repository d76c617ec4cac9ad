// Tests that a task defined only in this file can be trained, planned, verified, saved, resumed and
// reported, with one class and one line of registration.
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"
#include "strata/run/verify.h"
#include "strata/task/kinds/kinds.h"

namespace strata {
namespace {

using Specs = std::span<const TensorSpec>;
using Tensors = std::span<const at::Tensor>;

struct Dense final : Layer {
  Dense(std::int64_t in, std::int64_t out) : in(in), out(out) {}
  std::vector<WeightSpec> weights() const override {
    return {{.name = "weight", .shape = {out, in}, .init = {Init::Kind::kNormal, 0.5}},
            {.name = "bias", .shape = {out}}};
  }
  std::vector<TensorSpec> outputs(Specs x) const override { return {{{x[0].shape[0], out}}}; }
  std::vector<at::Tensor> forward(const ForwardContext&, Tensors weights,
                                  Tensors x) const override {
    return {at::addmm(weights[1], x[0], weights[0].t())};
  }
  std::int64_t in, out;
};

struct SquaredError final : Layer {
  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(Specs) const override { return {{}}; }
  std::vector<at::Tensor> forward(const ForwardContext& context, Tensors,
                                  Tensors x) const override {
    const at::Tensor sum = (x[0].sum(1) - x[1]).square().sum();
    context.loss->sum += sum.item<double>();
    return {sum * context.loss_scale};
  }
};

// Sample i is (a, b) = (i % 7, i % 5) / 4 with the label 2 a - b + 0.5.
MiniBatch samples(std::int64_t first, std::int64_t count) {
  const at::Tensor i = at::arange(first, first + count, host_options(at::kLong));
  const at::Tensor a = i.remainder(7).to(at::kFloat) / 4, b = i.remainder(5).to(at::kFloat) / 4;
  return {
      .inputs = {at::stack({a, b}, 1), 2 * a - b + 0.5}, .samples = count, .valid_tokens = count};
}

struct LinearData final : TaskData {
  explicit LinearData(const TrainOptions& train) : train(train) {}
  MiniBatch at(std::int64_t seen) const override { return samples(seen, train.mini_batch); }
  std::int64_t seen_after(std::int64_t seen) const override { return seen + train.mini_batch; }
  std::int64_t steps() const override { return train.steps; }
  std::string unit() const override { return "sample"; }
  bool evaluates() const override { return true; }
  std::vector<MiniBatch> validation() const override { return {samples(0, 35)}; }
  TrainOptions train;
};

struct LinearTask final : Task {
  void describe(OptionSet& set) override {
    set.add("model.hidden", &hidden, {.help = "Width between the products.", .minimum = 1});
  }
  std::string title() const override { return "Linear regression"; }
  Sequential model(const Recipe&, TensorSplit split) const override {
    Sequential model({"points", "labels"}, split);
    model.add("first", std::make_shared<Dense>(2, hidden), {"points"});
    model.add("middle", std::make_shared<Dense>(hidden, hidden));
    model.add("last", std::make_shared<Dense>(hidden, 1));
    model.add("loss", std::make_shared<SquaredError>(), {"x", "labels"}, {"loss"});
    return model;
  }
  std::vector<TensorSpec> batch_inputs(std::int64_t count) const override {
    return {{{count, 2}}, {{count}}};
  }
  CheckpointModel checkpoint_model() const override {
    return CheckpointModel(R"({"hidden": )" + std::to_string(hidden) + "}");
  }
  std::unique_ptr<TaskData> open(const Recipe& recipe, const std::string&) const override {
    return std::make_unique<LinearData>(recipe.train);
  }
  std::string data_source() const override { return "a formula"; }
  std::int64_t hidden = 4;
};

std::unique_ptr<Task> make_linear() { return std::make_unique<LinearTask>(); }

const bool registered = add_task_kind({"linear", "Fields of task linear:", {}, make_linear});

class OwnTask : public testing::Test {
 protected:
  ResolvedRun run(std::vector<std::string> overrides = {}) const {
    EXPECT_TRUE(registered);
    return resolve(parse_recipe(
        "task: linear\ntrain: {steps: 60, mini_batch: 16, micro_batch: 4, decay: constant,\n"
        "        optimizer: {kind: sgd, learning_rate: 0.05, momentum: 0.8}}\nmesh: {threads: 1}\n",
        "linear.yaml", overrides));
  }
  std::string saved() const { return "train.checkpoint_folder=" + folder_.path("saved"); }
  ScratchFolder folder_;
};

const std::vector<std::string> kMesh = {"mesh.pp=3", "mesh.dp=2"};

// The label is a linear function, so the best loss is 0.
TEST_F(OwnTask, LearnsFormulaOnThreeStagesAndTwoReplicas) {
  const TrainingResult one = train(run()), six = train(run(kMesh));
  ASSERT_EQ(one.records.size(), 60u);
  EXPECT_GT(one.records.front().loss, 0.1);
  EXPECT_LT(one.validation_loss, 1e-3);
  EXPECT_NEAR(six.validation_loss, one.validation_loss, 1e-6);
  EXPECT_NEAR(one.records.front().loss, six.records.front().loss, 1e-5);
  EXPECT_EQ(six.unit, "sample");
  EXPECT_EQ(six.records.back().samples_seen, 60 * 16);
  EXPECT_EQ(six.records.back().peak_bytes.size(), 6u);
}

TEST_F(OwnTask, IsPlannedAndVerified) {
  const ResolvedRun pipeline = run({"mesh.pp=3"});
  const PlannedRun planned = plan_run(pipeline, /*probe=*/false);
  EXPECT_EQ(planned.plan.ledger.size(), 3u);
  const Verification same = verify(pipeline.recipe, planned);
  EXPECT_TRUE(same.bits_expected);
  EXPECT_TRUE(same.holds());
  const ResolvedRun mesh = run(kMesh);
  EXPECT_TRUE(verify(mesh.recipe, plan_run(mesh, /*probe=*/false)).holds());
}

TEST_F(OwnTask, ResumesWithBitsOfUninterruptedRun) {
  const TrainingResult whole = train(run(kMesh));
  std::vector<std::string> half = kMesh;
  half.push_back(saved());
  half.push_back("train.steps=30");
  train(run(half));
  std::vector<std::string> rest = kMesh;
  rest.push_back(saved());
  const TrainingResult resumed = train(run(rest), {.resume = folder_.path("saved")});
  ASSERT_EQ(resumed.records.size(), 30u);
  for (std::size_t i = 0; i < 30; ++i)
    EXPECT_EQ(resumed.records[i].loss, whole.records[30 + i].loss) << "step " << 31 + i;
  rest.push_back("model.hidden=5");
  EXPECT_THROW(resume_point(run(rest).recipe, folder_.path("saved")), UserError);
}

TEST_F(OwnTask, IsReportedWithNameAndData) {
  const ResolvedRun resolved = run(kMesh);
  World world = join_world(resolved);
  const PlannedRun planned = plan_run(resolved, /*probe=*/false);
  const TrainingResult result = train(world, resolved.recipe, planned, {.timeline = true});
  const std::string path = folder_.path("report.html");
  write_run_report(path, resolved.recipe, planned, result, {}, {});
  std::ostringstream html;
  html << std::ifstream(path).rdbuf();
  for (const char* text : {"Linear regression", "a formula", "task: linear"})
    EXPECT_NE(html.str().find(text), std::string::npos) << text;
}

TEST_F(OwnTask, RefusesUnsupportedRequests) {
  const auto refusal = [&](const auto& action) -> std::string {
    try {
      action();
    } catch (const UserError& error) {
      return error.text().what;
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([&] { run({"data.train=x"}); }),
            "unknown field 'data.train': task text has it, and the recipe's task is linear");
  EXPECT_NE(refusal([&] { run({"mesh.pp=5"}); }), "accepted") << "four layers";
  EXPECT_EQ(refusal([&] { train(run(), {.inspection = {.importance = true}}); }),
            "this model has neither features nor tables of ids");
}

}  // namespace
}  // namespace strata
