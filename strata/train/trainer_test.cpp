// Tests properties of a step other than its numbers: its random numbers, released bytes, and errors
// that name the action.
#include "strata/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/schedule/action.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/wrapped_layer_test.h"

namespace strata {
namespace {

MeshCase small_gpt(double dropout) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = dropout};
  return c;
}

TEST(Dropout, DiffersBetweenStepsAndRepeatsForSameStep) {
  const MeshCase c = small_gpt(0.2);
  const Sequential model = mesh_model(c);
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, mesh_plan(c, model), group, mesh_options(c));
    trainer.initialise();
    const MiniBatch batch = mesh_batch(c, 0);
    const double first = trainer.gradient_step(batch).loss;
    EXPECT_EQ(trainer.gradient_step(batch).loss, first);
    trainer.set_steps_done(1);
    EXPECT_NE(trainer.gradient_step(batch).loss, first);
  });
}

// With zero matrices and biases of one, a block adds just its two dropped-out biases to the stream.
TEST(Dropout, AttentionAndMlpUseDifferentMasks) {
  constexpr double kDropped = 0.5;
  const MeshCase c = small_gpt(kDropped);
  const Sequential model = mesh_model(c);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights;
  for (const WeightSpec& spec : model.layout(1).specs) {
    const bool one = spec.name == "attention.out.bias" || spec.name == "mlp.down.bias";
    weights.push_back(at::full(spec.shape, one ? 1.0f : 0.0f));
  }
  const std::vector<at::Tensor> inputs = {at::zeros({8, 16, 32})};
  const at::Tensor sum =
      model.layer(1).forward({.training = true, .seed = 3, .layer = 1}, weights, inputs)[0];
  const auto share = [&](double value) {
    return static_cast<double>(sum.eq(value).sum().item<std::int64_t>()) /
           static_cast<double>(sum.numel());
  };
  EXPECT_NEAR(share(0), 0.25, 0.05);
  EXPECT_NEAR(share(2), 0.5, 0.05);  // kept by one of the two
  EXPECT_NEAR(share(4), 0.25, 0.05);
}

TEST(Step, ReleasesAllBytes) {
  for (const int micro_batch : {1, 8}) {
    MeshCase c = small_gpt(0.1);
    c.micro_batch = micro_batch;
    const Sequential model = mesh_model(c);
    run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount& account) {
      Trainer trainer(model, mesh_plan(c, model), group, mesh_options(c));
      trainer.initialise();
      const MiniBatch batch = mesh_batch(c, 0);
      const std::int64_t before = account.current_bytes();
      trainer.step(batch, 1e-3);
      EXPECT_EQ(account.current_bytes(), before) << "micro-batches of " << micro_batch;
    });
  }
}

// Under 1F1B the last stage holds one micro-batch at a time, for any number of them.
TEST(Step, FreesMicroBatchAtItsBackward) {
  std::vector<std::int64_t> peaks;
  for (const std::int64_t mini_batch : {2, 32}) {
    MeshCase c = small_gpt(0);
    c.schedule = ScheduleKind::k1f1b;
    c.mini_batch = mini_batch;
    const Sequential model = mesh_model(c);
    run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount& account) {
      Trainer trainer(model, mesh_plan(c, model), group, mesh_options(c));
      trainer.initialise();
      const MiniBatch batch = mesh_batch(c, 0);
      trainer.step(batch, 1e-3);
      account.reset_peak();
      const std::int64_t before = account.current_bytes();
      trainer.step(batch, 1e-3);
      peaks.push_back(account.peak_bytes() - before);
    });
  }
  EXPECT_LT(peaks[1], peaks[0] + peaks[0] / 20);
}

// The exception of libtorch's allocators: a SystemError, not a bug and not a wrong recipe.
TEST(Step, ExhaustedMemoryIsSystemError) {
  const std::vector<std::pair<std::string, std::function<void()>>> cases{
      {"the device is out of memory",
       [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "tried to allocate 20 GiB"); }},
      {"memory is exhausted", [] { throw std::bad_alloc(); }}};
  for (const auto& [what, exhaust] : cases) {
    const MeshCase c = small_gpt(0);
    const Sequential inner = mesh_model(c);  // owns the layers that the other one wraps
    const Sequential model =
        with_wrapped_layer(inner, 1, [&](std::span<const at::Tensor>) { exhaust(); });
    try {
      run_ranks({.ranks = 1, .rendezvous = Rendezvous{}}, [&](Group& group, MemoryAccount&) {
        Trainer trainer(model, mesh_plan(c, model), group, mesh_options(c));
        trainer.initialise();
        trainer.step(mesh_batch(c, 0), 1e-3);
      });
      FAIL() << "the error was lost";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.text().what, what);
      EXPECT_NE(error.text().where.find("position 0"), std::string::npos) << error.text().where;
    }
  }
}

TEST(Step, StallIsReportedWithRankAndAction) {
  MeshCase c = small_gpt(0);
  c.mesh[Axis::kPipeline] = 2;
  const Sequential model = mesh_model(c);
  const int slow = model.num_layers() - 2;  // the last stage's
  std::atomic<bool> ended = false;
  const Sequential sleepy = with_wrapped_layer(model, slow, [&](std::span<const at::Tensor>) {
    for (int i = 0; i < 1500 && !ended; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  RanksOptions options{.ranks = 2, .mesh = c.mesh, .rendezvous = Rendezvous{}};
  options.stall_seconds = 1;
  options.stall_fatal_seconds = 5;  // starting a step never takes this long
  try {
    run_ranks(options, [&](Group& group, MemoryAccount&) {
      Trainer trainer(sleepy, mesh_plan(c, sleepy), group, mesh_options(c));
      trainer.initialise();
      try {
        trainer.step(mesh_batch(c, 0), 1e-3);
      } catch (...) {
        ended = true;
        throw;
      }
    });
    FAIL() << "the stall was not noticed";
  } catch (const SystemError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find(words_for(Op::kForward)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace strata
