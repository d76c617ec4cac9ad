// What ZeRO keeps on a rank, measured by the allocator, against the formulas of its paper.
#include <gtest/gtest.h>

#include "strata/comm/ranks.h"
#include "strata/device/account.h"
#include "strata/models/model.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

// Rajbhandari et al. 2020, section 5, for fp32 with AdamW: 4 bytes of weight, 4 of gradient and 8
// of states a parameter, the states, gradients and weights over N ranks from stage 1, 2 and 3 on.
double formula(int zero, double parameters, int ranks) {
  const double n = ranks;
  return parameters * (4 / (zero >= 3 ? n : 1) + 4 / (zero >= 2 ? n : 1) + 8 / (zero >= 1 ? n : 1));
}

class ZeroBytes : public ::testing::TestWithParam<int> {};

TEST_P(ZeroBytes, StayWithinThreePercentOfTheFormula) {
  MeshCase c;
  c.model = {.layers = 4, .width = 256, .heads = 4, .vocab = 512, .context = 32, .tie = false};
  c.mesh = {.dp = 4};
  c.zero = GetParam();
  c.reduce_each = c.zero >= 2;
  const Sequential model = make_gpt(c.model);
  const double expected = formula(c.zero, static_cast<double>(model.num_weights()), 4);
  run_thread_ranks({.ranks = 4}, [&](Group& group, MemoryAccount& account) {
    Trainer trainer(model, mesh_plan(c, model), group, mesh_options(c));
    trainer.initialise();
    group.barrier();
    const auto kept = static_cast<double>(account.current_bytes());
    trainer.step(mesh_batch(c, 0), 1e-3);
    group.barrier();
    const auto after = static_cast<double>(account.current_bytes());
    EXPECT_NEAR(kept, expected, 0.03 * expected) << "before a step";
    EXPECT_NEAR(after, expected, 0.03 * expected) << "after a step";
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroBytes, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace strata
