// Rollouts against a decoder that is filled with a copy of the trainer's weights of the same step,
// and the training around them against training without them.
#include "strata/rollout/rollouts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/device/account.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/models/model.h"
#include "strata/serve/pass_loop.h"
#include "strata/serve/scored_tokens_test.h"

namespace strata {
namespace {

constexpr std::int64_t kTokens = 48, kContextTokens = 64;
constexpr int kSteps = 3, kLayers = 4;

struct RolloutCase {
  DecoderKind kind = DecoderKind::kGpt;
  Mesh mesh = {};
  int zero = 0;
  at::ScalarType precision = at::kFloat;
  Tier tier = Tier::kDevice;
  int virtual_stages = 1;
};

DecoderOptions options_of(const RolloutCase& c) {
  DecoderOptions options{.kind = c.kind,
                         .layers = kLayers,
                         .width = 32,
                         .heads = 4,
                         .vocab = kTokens,
                         .context = kContextTokens};
  if (c.kind == DecoderKind::kLlama) options.kv_heads = 2;
  return options;
}

Sequential model_of(const RolloutCase& c, DecoderOutput output, int ranks) {
  TensorSplit split{.ranks = ranks};
  if (output == DecoderOutput::kLoss) split.context.ranks = c.mesh[Axis::kContext];
  return make_model(options_of(c), output, split, c.precision);
}

// The number of the copy of the model that a rank has a part of.
std::int64_t copy_of(const Mesh& mesh, int rank) {
  const MeshPlace place = mesh.place(rank);
  return place[Axis::kData] * mesh[Axis::kContext] + place[Axis::kContext];
}

StepPlan plan_of(const RolloutCase& c, const Sequential& model) {
  StepDecisions decisions{.mesh = c.mesh, .zero = {.stage = c.zero}, .micro_batch = 2};
  const int stages = c.mesh[Axis::kPipeline] * c.virtual_stages;
  decisions.schedule = c.virtual_stages > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1f1b;
  decisions.virtual_stages = c.virtual_stages;
  for (int stage = 0; stage <= stages; ++stage)
    decisions.partition.bounds.push_back(model.num_layers() * stage / stages);
  if (c.tier != Tier::kDevice)
    decisions.tiers.layers.assign(static_cast<std::size_t>(model.num_layers()),
                                  {c.tier, c.tier, c.tier});
  return plan_steps(model, decisions);
}

MiniBatch batch_of(int step) {
  const at::Tensor text =
      at::arange(step, step + 8 * 17, host_options(at::kLong)).remainder(kTokens).view({8, 17});
  return {{text.narrow(1, 0, 16).contiguous(), text.narrow(1, 1, 16).contiguous()},
          /*samples=*/8,
          /*valid_tokens=*/8 * 16};
}

std::vector<SequenceRequest> requests_of(std::int64_t replica) {
  std::vector<SequenceRequest> requests;
  for (std::int64_t i = 0; i < 7; ++i)
    requests.push_back(
        {.prompt = std::vector<std::int64_t>(1 + 3 * i, (replica + i) % kTokens),
         .max_tokens = 3 + i,
         .sampling = {.temperature = i % 2 == 0 ? 1.0 : 0.0, .seed = static_cast<std::uint64_t>(i)},
         .likeliest = static_cast<int>(i % 3),
         .score_prompt = i % 2 == 1});
  return requests;
}

using Weights = std::map<std::string, at::Tensor>;

// The trainer's weights as layers compute with them, whole.
class Snapshot {
 public:
  void add(std::vector<NamedState> states) {
    const std::scoped_lock lock(mutex_);
    const UnchargedScope copies;
    for (const NamedState& state : states) {
      at::Tensor& whole = weights_[state.name];
      if (!whole.defined()) whole = at::empty({state.numel()}, host_options(at::kFloat));
      for (const Run& run : state.runs)
        whole.narrow(0, run.global, run.numel).copy_(state.local.narrow(0, run.local, run.numel));
    }
  }
  void read(const std::vector<NamedState>& states) const {
    for (const NamedState& state : states)
      for (const Run& run : state.runs)
        state.local.narrow(0, run.local, run.numel)
            .copy_(weights_.at(state.name).narrow(0, run.global, run.numel));
  }
  bool operator==(const Snapshot& other) const {
    return std::ranges::equal(weights_, other.weights_, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.equal(b.second);
    });
  }

 private:
  std::mutex mutex_;
  Weights weights_;
};

// What a decoder of its own answers with these weights.
std::vector<Rollout> answers_of(const RolloutCase& c, const Snapshot& weights,
                                std::int64_t replica) {
  const int ranks = c.mesh[Axis::kTensor];
  const Sequential model = model_of(c, DecoderOutput::kLogits, ranks);
  const std::vector<SequenceRequest> requests = requests_of(replica);
  std::vector<Rollout> answers(requests.size());
  RequestLoop loop({.limits = {.pages = 64, .page_tokens = 8, .context = kContextTokens},
                    .vocabulary = kTokens});
  std::size_t left = requests.size();
  for (std::size_t i = 0; i < requests.size(); ++i)
    loop.submit(requests[i],
                {.on_prompt = [&, i](auto tokens) { answers[i].prompt = std::move(tokens); },
                 .on_token = [&, i](const auto& token) { answers[i].tokens.push_back(token); },
                 .on_finish =
                     [&, i](const Finish& finish) {
                       answers[i].reason = finish.reason;
                       if (--left == 0) loop.stop();
                     }});
  run_thread_ranks({.ranks = ranks}, [&](Group& world, MemoryAccount&) {
    Decoder decoder(model, Mesh{{Axis::kTensor, ranks}}, {.page_tokens = 8, .pages = 64}, world);
    decoder.fill([&](const std::vector<NamedState>& states) { weights.read(states); });
    run_passes(decoder, world, loop);
  });
  return answers;
}

class RolloutsTest : public testing::TestWithParam<RolloutCase> {
 protected:
  // Trains, with or without rollouts after each step; returns the last weights.
  std::shared_ptr<const Snapshot> train(bool rolls_out) {
    const RolloutCase c = GetParam();
    const int ranks = c.mesh[Axis::kTensor];
    const Sequential model = model_of(c, DecoderOutput::kLoss, ranks);
    const Sequential decoder = model_of(c, DecoderOutput::kLogits, ranks);
    const StepPlan plan = plan_of(c, model);
    std::vector<std::shared_ptr<Snapshot>> steps;
    for (int step = 0; step < kSteps; ++step) steps.push_back(std::make_shared<Snapshot>());
    const std::string disk = scratch_.path(rolls_out ? "with" : "without");
    std::vector<std::vector<std::vector<Rollout>>> made(static_cast<std::size_t>(c.mesh.size()),
                                                        std::vector<std::vector<Rollout>>(kSteps));
    run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& world, MemoryAccount&) {
      TrainerOptions options{.precision = c.precision};
      if (c.tier == Tier::kDisk) options.disk.path = disk;
      Trainer trainer(model, plan, world, options);
      trainer.initialise();
      std::optional<Rollouts> rollouts;
      if (rolls_out)
        rollouts.emplace(
            trainer, decoder,
            RolloutOptions{.context = kContextTokens, .page_tokens = 8, .sequences = 4}, world);
      const std::int64_t replica = copy_of(c.mesh, world.rank());
      for (int step = 0; step < kSteps; ++step) {
        trainer.step(batch_of(step), 1e-2);
        for (const int layer : trainer.layers()) steps[step]->add(trainer.owned_weights(layer));
        if (rolls_out) made[world.rank()][step] = rollouts->answer(requests_of(replica));
      }
    });
    for (int rank = 0; rolls_out && rank < c.mesh.size(); ++rank)
      for (int step = 0; step < kSteps; ++step) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << ", step " << step);
        expect_answers(made[rank][step], *steps[step], copy_of(c.mesh, rank), step + 1);
      }
    return steps.back();
  }

  void expect_answers(const std::vector<Rollout>& got, const Snapshot& weights,
                      std::int64_t replica, std::int64_t steps) {
    const std::vector<Rollout> expected = answers_of(GetParam(), weights, replica);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(got[i].steps, steps);
      EXPECT_EQ(got[i].reason, expected[i].reason);
      EXPECT_EQ(std::ssize(got[i].tokens), 3 + static_cast<std::int64_t>(i));
      expect_equal(got[i].prompt, expected[i].prompt);
      expect_equal(got[i].tokens, expected[i].tokens);
    }
  }

  const DiskScratch scratch_;
};

TEST_P(RolloutsTest, AnswerWithTheWeightsOfTheLastStepAndChangeNothing) {
  EXPECT_TRUE(*train(true) == *train(false));
}

constexpr Mesh kTensor2{{Axis::kTensor, 2}}, kPipeline2{{Axis::kPipeline, 2}},
    kData2{{Axis::kData, 2}};

INSTANTIATE_TEST_SUITE_P(
    Cases, RolloutsTest,
    testing::Values(RolloutCase{}, RolloutCase{.kind = DecoderKind::kLlama, .mesh = kTensor2},
                    RolloutCase{.mesh = kPipeline2},
                    RolloutCase{.mesh = kPipeline2, .virtual_stages = 2},
                    RolloutCase{.kind = DecoderKind::kLlama, .mesh = kData2, .zero = 2},
                    RolloutCase{.mesh = {{Axis::kPipeline, 2}, {Axis::kData, 2}}, .zero = 1},
                    RolloutCase{.mesh = {{Axis::kData, 2}, {Axis::kContext, 2}}, .zero = 2},
                    RolloutCase{.mesh = kPipeline2, .precision = at::kBFloat16},
                    RolloutCase{.tier = Tier::kHost},
                    RolloutCase{.mesh = kPipeline2, .tier = Tier::kDisk}));

TEST(RolloutsErrors, RefuseWeightsInParts) {
  const RolloutCase c{.mesh = kData2, .zero = 3};
  const Sequential model = model_of(c, DecoderOutput::kLoss, 1);
  const Sequential decoder = model_of(c, DecoderOutput::kLogits, 1);
  const StepPlan plan = plan_of(c, model);
  EXPECT_THROW(run_thread_ranks({.ranks = 2},
                                [&](Group& world, MemoryAccount&) {
                                  Trainer trainer(model, plan, world);
                                  Rollouts rollouts(trainer, decoder, {.context = kContextTokens},
                                                    world);
                                }),
               UserError);
}

TEST(RolloutsErrors, RefuseReplicasThatTrainApart) {
  const RolloutCase c{.mesh = kData2};
  const Sequential model = model_of(c, DecoderOutput::kLoss, 1);
  const Sequential decoder = model_of(c, DecoderOutput::kLogits, 1);
  StepDecisions decisions = plan_of(c, model).decisions();
  decisions.replicas_apart = true;
  const StepPlan plan = plan_steps(model, decisions);
  run_thread_ranks({.ranks = 2}, [&](Group& world, MemoryAccount&) {
    Trainer trainer(model, plan, world, {.outer = {.every = 2}});
    EXPECT_THROW(Rollouts(trainer, decoder, {.context = kContextTokens}, world), UserError);
  });
  const StepPlan together = plan_of(c, model);
  run_thread_ranks({.ranks = 2}, [&](Group& world, MemoryAccount&) {
    Trainer trainer(model, together, world, {.optimizer = {.kind = OptimizerKind::kZeroOneAdam}});
    EXPECT_THROW(Rollouts(trainer, decoder, {.context = kContextTokens}, world), UserError);
  });
}

TEST(RolloutsErrors, RefuseAModelOfOtherWeightsAndNoContext) {
  const RolloutCase c;
  const Sequential model = model_of(c, DecoderOutput::kLoss, 1);
  DecoderOptions wider = options_of(c);
  wider.width = 64;
  const Sequential bf16 = make_model(options_of(c), DecoderOutput::kLogits, {}, at::kBFloat16);
  const Sequential other = make_model(wider, DecoderOutput::kLogits);
  run_thread_ranks({}, [&](Group& world, MemoryAccount&) {
    Trainer trainer(model, plan_of(c, model), world);
    EXPECT_THROW(Rollouts(trainer, bf16, {.context = 8}, world), UserError);
    EXPECT_THROW(Rollouts(trainer, other, {.context = 8}, world), UserError);
    const Sequential same = model_of(c, DecoderOutput::kLogits, 1);
    EXPECT_THROW(Rollouts(trainer, same, {}, world), UserError);  // no context
  });
}

// On every rank, so that a caller may go on after it.
TEST(RolloutsErrors, AreThrownOnEveryRankOfTheReplica) {
  const RolloutCase c{.mesh = kPipeline2};
  const Sequential model = model_of(c, DecoderOutput::kLoss, 1);
  const Sequential decoder = model_of(c, DecoderOutput::kLogits, 1);
  run_thread_ranks({.ranks = 2}, [&](Group& world, MemoryAccount&) {
    Trainer trainer(model, plan_of(c, model), world);
    trainer.initialise();
    Rollouts rollouts(trainer, decoder, {.context = kContextTokens}, world);
    EXPECT_TRUE(rollouts.answer({}).empty());
    const std::vector<SequenceRequest> other_token = {{.prompt = {kTokens}}};
    EXPECT_THROW(rollouts.answer(other_token), UserError);
    const std::vector<SequenceRequest> longer = {
        {.prompt = std::vector<std::int64_t>(kContextTokens + 1, 1)}};
    EXPECT_THROW(rollouts.answer(longer), UserError);
    EXPECT_EQ(rollouts.answer(requests_of(0)).size(), requests_of(0).size());
    for (const NamedState& state : trainer.weights()) state.local.fill_(NAN);
    trainer.loaded();
    EXPECT_THROW(rollouts.answer(requests_of(0)), SystemError);
  });
}

TEST(RolloutMessage, CarriesEveryField) {
  const std::vector<Rollout> sent = {
      {.prompt = {{.token = 3, .log_probability = -0.1}},
       .tokens = {{.token = 5, .log_probability = -1.0 / 3, .likeliest = {{5, -1.0 / 3}, {1, -7}}},
                  {.token = 0}},
       .reason = FinishReason::kLength,
       .steps = 12},
      {.reason = FinishReason::kStop}};
  const std::vector<Rollout> received = rollouts_of(tensor_of(sent));
  ASSERT_EQ(received.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    expect_equal(received[i].prompt, sent[i].prompt);
    expect_equal(received[i].tokens, sent[i].tokens);
    EXPECT_EQ(received[i].reason, sent[i].reason);
    EXPECT_EQ(received[i].steps, sent[i].steps);
  }
  const at::Tensor cut = tensor_of(sent).narrow(0, 0, 5).clone();
  EXPECT_THROW(rollouts_of(cut), InternalError);
}

}  // namespace
}  // namespace strata
