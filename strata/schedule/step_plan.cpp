// The first rank that needs the programs builds those of all ranks, under the lock. Elements of a
// map do not move, so references to them stay valid.
#include "strata/schedule/step_plan.h"

#include <map>
#include <mutex>
#include <utility>

#include "strata/base/errors.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {

struct StepPlan::State {
  struct Entry {
    Schedule schedule;
    bool checked = false;
  };

  std::shared_ptr<const Dataflow> dataflow;
  StepDecisions decisions;
  ShardLayout shards;
  std::mutex mutex;
  std::map<std::pair<ScheduleKind, int>, Entry> made;  // by micro-batches

  const Schedule& schedule(ScheduleKind kind, int micro_batches, bool check) {
    const std::lock_guard lock(mutex);
    const PipelineShape shape{.ranks = decisions.mesh[Axis::kPipeline],
                              .micro_batches = micro_batches,
                              .virtual_stages = decisions.virtual_stages};
    const auto [found, is_new] = made.try_emplace({kind, micro_batches});
    Entry& entry = found->second;
    try {
      if (is_new) entry.schedule = lowered(kind, shape);
      if (check && !entry.checked)
        check_schedule(entry.schedule, kind, shape, shards, decisions.tiers, *dataflow,
                       decisions.partition);
    } catch (...) {
      made.erase(found);
      throw;
    }
    entry.checked |= check;
    return entry.schedule;
  }

  Schedule lowered(ScheduleKind kind, PipelineShape shape) const {
    const bool trains = kind != ScheduleKind::kForward;
    return lower(build_schedule(kind, shape), *dataflow, decisions.partition,
                 {.recompute = trains ? decisions.recompute : LayerSet{},
                  .shards = shards,
                  .tiers = decisions.tiers,
                  .update = trains});
  }
};

StepPlan::StepPlan(std::shared_ptr<const Dataflow> dataflow, const LayerSet& with_weights,
                   StepDecisions decisions)
    : state_(std::make_shared<State>()) {
  Partition& partition = decisions.partition;
  if (partition.bounds.empty()) partition.bounds = {0, dataflow->num_layers};
  Mesh& mesh = decisions.mesh;
  if (mesh.size() == 1) mesh[Axis::kPipeline] = partition.num_stages() / decisions.virtual_stages;
  STRATA_CHECK_EQ(partition.num_stages(), mesh[Axis::kPipeline] * decisions.virtual_stages,
                  "schedule.step_plan");
  STRATA_CHECK_EQ(partition.bounds.back(), dataflow->num_layers, "schedule.step_plan");
  state_->shards = shard_layout(decisions.zero, mesh[Axis::kData], *dataflow, with_weights,
                                decisions.sequence_parallel);
  std::vector<int> rank_of_layer;
  for (int layer = 0; layer < dataflow->num_layers; ++layer)
    rank_of_layer.push_back(partition.stage_of(layer) % mesh[Axis::kPipeline]);
  decisions.tiers = tiers_on_ranks(std::move(decisions.tiers), *dataflow, with_weights,
                                   rank_of_layer, state_->shards);
  // Replicas that divide the states of a layer keep a part of its weights each on the host. The
  // whole is gathered from the parts, so that all their links are used at once.
  for (int layer = 0; layer < static_cast<int>(state_->shards.layers.size()); ++layer) {
    LayerShards& shards = state_->shards.layers[layer];
    shards.weights |= shards.states && decisions.tiers[layer].fetches_weights();
  }
  state_->dataflow = std::move(dataflow);
  state_->decisions = std::move(decisions);
}

const StepDecisions& StepPlan::decisions() const { return state_->decisions; }
const Dataflow& StepPlan::dataflow() const { return *state_->dataflow; }
const ShardLayout& StepPlan::shards() const { return state_->shards; }

int StepPlan::pipeline_rank(int layer) const {
  return decisions().partition.stage_of(layer) % decisions().mesh[Axis::kPipeline];
}

const Schedule& StepPlan::training(int micro_batches) const {
  return state_->schedule(decisions().schedule, micro_batches, /*check=*/true);
}
const Schedule& StepPlan::evaluation(int micro_batches) const {
  return state_->schedule(ScheduleKind::kForward, micro_batches, /*check=*/true);
}
const Schedule& StepPlan::proposed(int micro_batches) const {
  return state_->schedule(decisions().schedule, micro_batches, /*check=*/false);
}
const Schedule& StepPlan::proposed_evaluation(int micro_batches) const {
  return state_->schedule(ScheduleKind::kForward, micro_batches, /*check=*/false);
}

void check_schedule(const Schedule& schedule, ScheduleKind kind, PipelineShape shape,
                    const ShardLayout& shards, const TierLayout& tiers, const Dataflow& dataflow,
                    const Partition& partition) {
  ValidateOptions options{
      .backward = kind != ScheduleKind::kForward, .shards = shards, .tiers = tiers};
  for (int rank = 0; rank < shape.ranks; ++rank)
    options.in_flight_bound.push_back(in_flight_bound(kind, shape, rank));
  validate(schedule, dataflow, partition, options);
}

}  // namespace strata
