// Tests what a recipe asks the planner for if replicas send signs and share shards.
#include "strata/run/plan_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/plan/search/planner.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resolved_run.h"

namespace strata {
namespace {

Recipe recipe(std::vector<std::string> overrides) {
  overrides.emplace_back("data.train=text");
  return parse_recipe(
      "model: {kind: gpt, layers: 2, width: 32, heads: 2, vocab: 256, context: 16}\n"
      "train: {steps: 5, mini_batch: 8, micro_batch: 1, "
      "optimizer: {kind: onebit-adam, freeze_step: 2}}\n"
      "mesh:  {dp: 4, zero: 1, shard_ranks: 2, threads: 1}\n",
      "recipe.yaml", overrides);
}

PlanRequest request(const std::vector<std::string>& overrides, int processes = 1) {
  const Recipe asked = recipe(overrides);
  return plan_request(asked, model_of(asked), {}, processes);
}

// Returns the error's fix.
std::string refusal(const std::vector<std::string>& overrides) {
  try {
    request(overrides);
  } catch (const UserError& error) {
    EXPECT_TRUE(error.text().what.starts_with("mesh.shard_ranks: ")) << error.text().what;
    EXPECT_NE(error.text().what.find("one group"), std::string::npos);
    return error.text().fix;
  }
  return "no error";
}

TEST(PlanRequest, GroupsOfReplicasSendSigns) {
  EXPECT_TRUE(request({}).mesh.sends_signs);
  EXPECT_TRUE(request({"mesh.zero=0", "mesh.shard_ranks=0"}).mesh.sends_signs);
  EXPECT_TRUE(request({"mesh.shard_ranks=1"}).mesh.sends_signs);
  EXPECT_FALSE(request({"mesh.dp=1", "mesh.shard_ranks=0"}).mesh.sends_signs);
  EXPECT_FALSE(request({"train.optimizer.kind=adamw"}).mesh.sends_signs);
}

TEST(PlanRequest, OneGroupOfReplicasThatSendSignsIsRefused) {
  EXPECT_EQ(refusal({"mesh.shard_ranks=0"}), "set mesh.shard_ranks=2");
  EXPECT_EQ(refusal({"mesh.shard_ranks=4"}), "set mesh.shard_ranks=2");
  EXPECT_EQ(refusal({"mesh.dp=6", "mesh.shard_ranks=0", "train.mini_batch=12"}),
            "set mesh.shard_ranks=3");
  EXPECT_EQ(refusal({"mesh.dp=3", "mesh.shard_ranks=0"}), "set mesh.zero=0");
  EXPECT_EQ(refusal({"mesh.dp=2", "mesh.shard_ranks=2"}), "set mesh.zero=0 and mesh.shard_ranks=0");
  EXPECT_EQ(
      refusal({"mesh.dp=3", "mesh.zero=3", "mesh.traffic.weights=int8", "mesh.shard_ranks=0"}),
      "set mesh.zero=0 and mesh.traffic.weights=full");
  const std::string rounds = "train.optimizer.kind=zero-one-adam";
  EXPECT_EQ(refusal({"mesh.dp=3", "mesh.cp=2", "mesh.shard_ranks=0", "train.mini_batch=6", rounds}),
            "set mesh.shard_ranks=2");
  EXPECT_EQ(refusal({"mesh.dp=1", "mesh.cp=2", "mesh.shard_ranks=0", rounds}),
            "set mesh.zero=0 and train.optimizer.local_most=1");
}

// Of two processes with two ranks, each is a group: only signs use the link.
TEST(PlanRequest, LinkIsBetweenGroupsThatAreProcesses) {
  const std::vector<std::string> link{"mesh.link.bandwidth=8MB", "mesh.link.latency=0.01"};
  const MeshRequest two = request(link, 2).mesh;
  EXPECT_EQ(two.in_group().rate, kThreadRates[Axis::kData]);
  EXPECT_EQ(two.in_group().latency, 0);
  EXPECT_EQ(two.between_groups().rate, 8e6 / 2);  // two ranks send over one link
  EXPECT_EQ(two.between_groups().latency, 0.01);
  const MeshRequest four = request(link, 4).mesh;
  EXPECT_EQ(four.in_group().rate, 8e6);
  EXPECT_EQ(four.in_group().latency, 0.01);
  EXPECT_EQ(four.between_groups().rate, 8e6);
  // Stages, parts of samples and slices of matrices are other ranks.
  std::vector<std::string> all = link;
  for (const char* axis : {"mesh.pp=2", "mesh.dp=2", "mesh.cp=2", "mesh.tp=2"})
    all.emplace_back(axis);
  const MeshRequest eight = request(all, 4).mesh;
  EXPECT_EQ(eight.in_group().rate, kThreadRates[Axis::kData]);
  EXPECT_EQ(eight.between_groups().rate, 8e6 / 4);
  EXPECT_EQ(eight.between_groups().latency, 0.01);
}

TEST(PlanRequest, SearchedMeshesSendSigns) {
  const Recipe asked = recipe({"mesh.auto=true", "mesh.ranks=4", "mesh.dp=1", "mesh.zero=0",
                               "mesh.shard_ranks=0", "train.optimizer.kind=zero-one-adam"});
  const ResolvedRun run = resolve(asked, MachineProfile{});
  bool refused_group = false, refused_parts = false;
  for (const MeshTrial& trial : run.search->trials) {
    refused_group |= trial.why.find("one group") != std::string::npos;
    refused_parts |= trial.why.find("cannot move apart") != std::string::npos;
    const int ranks = trial.mesh.axes.weight_ranks();
    if (trial.fits) EXPECT_TRUE(ranks == 1 || trial.mesh.zero.shards(ranks) < ranks);
    if (trial.fits) EXPECT_EQ(trial.mesh.axes[Axis::kContext], 1);
  }
  EXPECT_TRUE(refused_group);
  EXPECT_TRUE(refused_parts);
}

}  // namespace
}  // namespace strata
