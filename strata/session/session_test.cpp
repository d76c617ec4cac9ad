// Tests a session against train() with the same mini-batches: equal bits on any mesh; and that
// refusals, errors of ranks and interrupted calls leave it in a known state.
#include "strata/session/session.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/recipe_file.h"
#include "strata/task/task.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    "model: {kind: gpt, layers: 2, width: 32, heads: 2, vocab: 256, context: 16, dropout: 0.1}\n"
    "data:  {validation_fraction: 0.2}\n"
    "train: {steps: 4, mini_batch: 4, micro_batch: 2, warmup: 1, validation_samples: 4,\n"
    "        optimizer: {kind: adamw, learning_rate: 1e-2}}\n"
    "mesh:  {threads: 1}\n";

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    std::ofstream text(folder_.path("text"));
    for (int i = 0; i < 200; ++i) text << "in the beginning were " << i * i * i << " words. ";
  }

  ResolvedRun resolved(std::vector<std::string> overrides = {}) {
    overrides.push_back("data.train=" + folder_.path("text"));
    return resolve(parse_recipe(kRecipe, "recipe.yaml", overrides));
  }

  // The tensors of a mini-batch of train().
  std::vector<at::Tensor> tensors(std::int64_t samples_seen) {
    const ResolvedRun run = resolved();
    return open_data(run.recipe)->at(samples_seen).inputs;
  }

  ScratchFolder folder_;
};

TEST_F(SessionTest, RefusesATargetThatItCannotLookFor) {
  EXPECT_THROW(Session(resolved({"train.target=val_loss<=1", "train.validate_every=1"})),
               UserError);
}

TEST_F(SessionTest, StepsHaveBitsOfTrainOnAnyMesh) {
  const TrainingResult trained = train(resolved());
  for (const std::vector<std::string>& mesh : std::vector<std::vector<std::string>>{
           {}, {"mesh.pp=2"}, {"mesh.pp=2", "memory.recompute=full"}, {"mesh.pp=3"}}) {
    Session session(resolved(mesh));
    for (int step = 0; step < 4; ++step) {
      const auto record = session.step(session.mini_batch(tensors(4 * step)));
      ASSERT_TRUE(record);
      EXPECT_EQ(record->step, step + 1);
      EXPECT_EQ(record->loss, trained.records[step].loss);
      EXPECT_EQ(record->gradient_norm, trained.records[step].gradient_norm);
      EXPECT_EQ(session.steps_done(), step + 1);
    }
  }
}

TEST_F(SessionTest, EvaluatesBroughtSamplesWithoutChangingWeights) {
  Session session(resolved({"mesh.pp=2"}));
  const auto first = session.mini_batch(tensors(0)), second = session.mini_batch(tensors(4));
  const double first_loss = session.evaluate({first}).loss;
  const double second_loss = session.evaluate({second}).loss;
  EXPECT_NE(first_loss, second_loss);
  EXPECT_NEAR(session.evaluate({first, second}).loss, (first_loss + second_loss) / 2, 1e-12);
  EXPECT_EQ(session.evaluate({first}).loss, first_loss);
}

TEST_F(SessionTest, LearningRateOfStepReplacesThatOfRecipe) {
  Session session(resolved());
  const auto before = session.weights();
  session.step(session.mini_batch(tensors(0)), 0.0);
  const auto same = session.weights();
  session.step(session.mini_batch(tensors(0)), 0.1);
  const auto changed = session.weights();
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(at::equal(tensor, same.at(name))) << name;
    EXPECT_FALSE(at::equal(tensor, changed.at(name))) << name;
  }
}

TEST_F(SessionTest, LoadedWeightsReplaceOthersOnAnyMesh) {
  Session one(resolved()), other(resolved({"mesh.pp=2", "train.seed=2"}));
  const auto batch = one.mini_batch(tensors(0));
  const double expected = one.evaluate({batch}).loss;
  EXPECT_NE(other.evaluate({batch}).loss, expected);
  other.load_weights(one.weights());
  EXPECT_EQ(other.evaluate({batch}).loss, expected);
}

TEST_F(SessionTest, RefusesWeightsOfAnotherModel) {
  Session session(resolved());
  auto weights = session.weights();
  weights["other"] = at::zeros({1}, host_options(at::kFloat));
  EXPECT_THROW(session.load_weights(weights), UserError);
  weights.erase("other");
  const std::string name = weights.begin()->first;
  weights[name] = at::zeros({1, 2, 3}, host_options(at::kFloat));
  EXPECT_THROW(session.load_weights(weights), UserError);
  weights.erase(name);
  EXPECT_THROW(session.load_weights(weights), UserError);
  EXPECT_TRUE(session.step(session.mini_batch(tensors(0))));
}

TEST_F(SessionTest, ResumesFromItsCheckpoint) {
  const std::string saved = folder_.path("saved");
  const TrainingResult trained = train(resolved());
  {
    Session session(resolved({"mesh.pp=2"}));
    for (int step = 0; step < 2; ++step) session.step(session.mini_batch(tensors(4 * step)));
    EXPECT_NE(session.save(saved).find("step-00000002"), std::string::npos);
  }
  Session session(resolved(), {.resume = saved});
  EXPECT_EQ(session.steps_done(), 2);
  for (int step = 2; step < 4; ++step)
    EXPECT_EQ(session.step(session.mini_batch(tensors(4 * step)))->loss,
              trained.records[step].loss);
}

TEST_F(SessionTest, RefusesMiniBatchesThatDoNotFitAndGoesOn) {
  Session session(resolved());
  const std::vector<at::Tensor> good = tensors(0);
  const auto refused = [&](std::vector<at::Tensor> batch) {
    try {
      session.mini_batch(std::move(batch));
    } catch (const UserError& error) {
      return error.text().what;
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({good[0]}), "the model has another number of tensors");
  EXPECT_EQ(refused({good[0].to(at::kFloat), good[1]}), "the tensor does not fit the model");
  EXPECT_EQ(refused({good[0].narrow(1, 0, 8), good[1]}), "the tensor does not fit the model");
  EXPECT_EQ(refused({good[0], good[1].narrow(0, 0, 2)}),
            "the tensors have different numbers of samples, or none");
  EXPECT_EQ(refused({good[0].repeat({2, 1}), good[1].repeat({2, 1})}),
            "the mini-batch is larger than the plan's");
  EXPECT_EQ(refused({good[0], at::full_like(good[1], -100)}), "no target counts towards the loss");
  EXPECT_EQ(refused({good[0].to(at::kInt), good[1]}), "accepted");
  EXPECT_TRUE(session.step(session.mini_batch(good)));
}

TEST_F(SessionTest, SmallerMiniBatchIsAStep) {
  Session session(resolved({"mesh.pp=2"}));
  const std::vector<at::Tensor> good = tensors(0);
  const auto record =
      session.step(session.mini_batch({good[0].narrow(0, 0, 3), good[1].narrow(0, 0, 3)}));
  EXPECT_EQ(record->samples_seen, 3);
  EXPECT_TRUE(session.step(session.mini_batch(good)));
}

TEST_F(SessionTest, ErrorOfRankEndsSession) {
  Session session(resolved({"mesh.pp=2", "train.clip=0", "train.optimizer.kind=sgd"}));
  const auto batch = session.mini_batch(tensors(0));
  std::string first;
  for (int step = 0; step < 4 && first.empty(); ++step) {
    try {
      session.step(batch, 1e30);
    } catch (const UserError& error) {
      first = error.what();
    }
  }
  EXPECT_NE(first.find("no longer finite"), std::string::npos) << first;
  try {
    session.evaluate({batch});
    ADD_FAILURE() << "the session went on";
  } catch (const UserError& error) {
    EXPECT_EQ(error.what(), first);
  }
}

TEST_F(SessionTest, RefusesStepsBeyondThoseOfRecipe) {
  Session session(resolved({"train.steps=1"}));
  const auto batch = session.mini_batch(tensors(0));
  EXPECT_TRUE(session.step(batch));
  try {
    session.step(batch);
    ADD_FAILURE() << "the session went on";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().got, "all 1 steps are done");
  }
  EXPECT_GT(session.evaluate({batch}).loss, 0);
  EXPECT_FALSE(session.weights().empty());
  EXPECT_EQ(session.result().records.size(), 1u);
}

TEST_F(SessionTest, InterruptedCallEndsBeforeNextOne) {
  std::atomic<bool> interrupts = false;
  Session session(resolved({"mesh.pp=2", "train.mini_batch=256", "train.micro_batch=1"}),
                  {.while_waiting = [&] {
                    if (interrupts) throw std::runtime_error("interrupted");
                  }});
  std::vector<at::Tensor> many = tensors(0);
  for (at::Tensor& tensor : many) tensor = tensor.repeat({64, 1});
  const auto batch = session.mini_batch(many);
  interrupts = true;
  EXPECT_THROW(session.step(batch), std::runtime_error);
  interrupts = false;
  EXPECT_EQ(session.step(batch)->step, 2);
}

TEST_F(SessionTest, ResultHasEveryStepAndTimelines) {
  Session session(resolved({"mesh.pp=2"}));
  for (int step = 0; step < 3; ++step) session.step(session.mini_batch(tensors(4 * step)));
  const TrainingResult result = session.result();
  EXPECT_EQ(result.records.size(), 3u);
  ASSERT_EQ(result.last_steps.size(), 3u);
  EXPECT_EQ(result.last_steps[0].ranks.size(), 2u);
  EXPECT_GT(result.median_step_seconds, 0);
  EXPECT_TRUE(session.step(session.mini_batch(tensors(0))));
}

TEST_F(SessionTest, ClosedSessionRefusesCalls) {
  Session session(resolved());
  const auto batch = session.mini_batch(tensors(0));
  session.step(batch);
  session.close();
  session.close();
  try {
    session.step(batch);
    ADD_FAILURE() << "the session went on";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().got, "close() was called");
  }
}

}  // namespace
}  // namespace strata
