// A rank that fails at any action stops all ranks with one error that names the action.
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/pipeline/stage_machine.h"
#include "strata/tier/peer_backend.h"
#include "strata/tier/store.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr Mesh kMesh{{Axis::kPipeline, 3}, {Axis::kData, 2}};

// Forwards to the inner machine until the fault's position.
class FaultyMachine final : public Machine {
 public:
  FaultyMachine(Machine& inner, int fails_at) : inner_(inner), left_(fails_at) {}
  void perform(const Action& action) override {
    if (left_-- == 0)
      throw SystemError({.operation = "test.fault", .what = "injected", .got = to_string(action)});
    inner_.perform(action);
  }

 private:
  Machine& inner_;
  int left_;
};

struct Setting {
  Sequential model = make_gpt({.layers = 4,
                               .width = 32,
                               .heads = 2,
                               .vocab = 32,
                               .context = 16,
                               .dropout = 0.1,
                               .tie = true,
                               .skip = true});
  StepPlan plan = plan_steps(model, {.mesh = kMesh,
                                     .partition = {{0, 2, 4, model.num_layers()}},
                                     .recompute = {2, 4},
                                     .zero = {.stage = 3},
                                     .micro_batch = 2});
  const Schedule& schedule = plan.training(3);
};

void run_with_fault(const Setting& setting, int faulty_rank, int position) {
  run_thread_ranks({.ranks = kMesh.size()}, [&](Group& group, MemoryAccount&) {
    MeshGroups groups = make_mesh_groups(group, kMesh, setting.plan.shards().shards);
    LayerStore store({.peers = std::make_unique<PeerBackend>(groups.shard)});
    const LayerRange layers =
        setting.plan.decisions().partition.layers(groups[Axis::kPipeline].rank());
    for (int layer = layers.begin; layer < layers.end; ++layer) {
      const LayerLayout& layout = setting.model.layout(layer);
      ShardPlacement placement = shard_placement(setting.plan, layer, layout, groups.shard.rank());
      placement.optimizer_slots = 2;
      store.insert(layer, layout, placement);
    }
    const auto optimizer = make_optimizer({});
    StageMachine machine(setting.model, setting.plan, {}, store, optimizer.get(), groups);
    const at::Tensor text = at::randint(32, {6, 16}, at::kLong);
    const MiniBatch batch{.inputs = {text, text}, .samples = 6, .valid_tokens = 192};
    const Program& program = setting.schedule.programs[groups[Axis::kPipeline].rank()];
    machine.begin(program, {.micro_batches = split(batch, 2), .valid_tokens = 192});
    FaultyMachine faulty(machine, group.rank() == faulty_rank ? position : -1);
    execute(program, faulty);
  });
}

TEST(Fault, AtAnyActionStopsAllRanksWithOneError) {
  const Setting setting;
  int faults = 0;
  for (int stage = 0; stage < kMesh[Axis::kPipeline]; ++stage) {
    const Program& program = setting.schedule.programs[stage];
    for (int position = 0; position < static_cast<int>(program.size()); ++position, ++faults) {
      const int rank =
          kMesh.rank({{Axis::kPipeline, stage}, {Axis::kData, position % kMesh[Axis::kData]}});
      try {
        run_with_fault(setting, rank, position);
        FAIL() << "rank " << rank << " failed at " << position << " without an error";
      } catch (const SystemError& error) {
        EXPECT_EQ(error.text().operation, "test.fault");
        EXPECT_EQ(error.text().where, "rank " + std::to_string(rank));
        EXPECT_EQ(error.text().got, to_string(program[position]));
        EXPECT_EQ(exit_code(error), 3);
      }
    }
  }
  EXPECT_GT(faults, 100);
}

TEST(Fault, WithoutFaultStepCompletes) { EXPECT_NO_THROW(run_with_fault(Setting(), -1, 0)); }

}  // namespace
}  // namespace strata
