// The first rank that needs the programs builds those of all ranks, under the lock. Elements of a
// map do not move, so references to them stay valid.
#include "strata/schedule/step_plan.h"

#include <map>
#include <mutex>
#include <tuple>
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
  int reordered = 0;  // how often
  // by kind, micro-batches and `reordered`: programs of earlier orders may still be referred to
  std::map<std::tuple<ScheduleKind, int, int>, Entry> made;

  const Schedule& schedule(ScheduleKind kind, int micro_batches, bool check) {
    const std::lock_guard lock(mutex);
    const auto [found, is_new] = made.try_emplace({kind, micro_batches, reordered});
    Entry& entry = found->second;
    try {
      const bool checks = check && !entry.checked;
      if (is_new || checks) {
        const Schedule order = order_of(kind, micro_batches);
        if (is_new) entry.schedule = lowered(order);
        if (checks) require_legal(entry.schedule, order);
      }
    } catch (...) {
      made.erase(found);
      throw;
    }
    entry.checked |= check;
    return entry.schedule;
  }

  // The compute actions of whole stages.
  Schedule order_of(ScheduleKind kind, int micro_batches) const {
    const PipelineShape shape{.ranks = decisions.mesh[Axis::kPipeline],
                              .micro_batches = micro_batches,
                              .virtual_stages = decisions.virtual_stages,
                              .rank_of_stage = decisions.rank_of_stage};
    if (traits_of(kind).has_builder) return build_schedule(kind, shape);
    STRATA_CHECK(decisions.order, "schedule.step_plan");
    const int most = decisions.order->num_micro_batches;
    if (micro_batches <= most) return first_micro_batches(*decisions.order, micro_batches);
    throw UserError({.operation = "schedule.build",
                     .where = name_of(kind),
                     .what = "the order has fewer micro-batches than the step",
                     .expected = std::to_string(micro_batches) + " or more",
                     .got = std::to_string(most),
                     .fix = "write the order for more micro-batches, or set a larger "
                            "train.micro_batch"});
  }

  int in_flight_bound(const Schedule& order, int rank) const {
    if (order.kind == ScheduleKind::kForward || traits_of(order.kind).has_builder)
      return strata::in_flight_bound(order.kind,
                                     {.ranks = order.num_ranks(),
                                      .micro_batches = order.num_micro_batches,
                                      .virtual_stages = decisions.virtual_stages},
                                     rank);
    return peak_in_flight(order.programs[rank]);
  }

  // Rejects a schedule that cannot run, or that holds more activations than its kind allows.
  void require_legal(const Schedule& schedule, const Schedule& order) const {
    ValidateOptions options{.backward = schedule.kind != ScheduleKind::kForward,
                            .shards = shards,
                            .tiers = decisions.tiers};
    for (int rank = 0; rank < order.num_ranks(); ++rank)
      options.in_flight_bound.push_back(in_flight_bound(order, rank));
    validate(schedule, *dataflow, decisions.partition, options);
  }

  Schedule lowered(const Schedule& order) const {
    const bool trains = order.kind != ScheduleKind::kForward;
    return lower(order, *dataflow, decisions.partition,
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
  state_->shards = shard_layout(decisions.zero, decisions.update_mesh().weight_ranks(), *dataflow,
                                with_weights, decisions.sequence_parallel);
  if (decisions.order) decisions.rank_of_stage = decisions.order->rank_of_stage;
  if (decisions.rank_of_stage.empty())
    decisions.rank_of_stage =
        ranks_of_stages(decisions.schedule, mesh[Axis::kPipeline], partition.num_stages());
  STRATA_CHECK_EQ(decisions.rank_of_stage.size(), static_cast<std::size_t>(partition.num_stages()),
                  "schedule.step_plan");
  std::vector<int> rank_of_layer;
  for (int layer = 0; layer < dataflow->num_layers; ++layer)
    rank_of_layer.push_back(decisions.rank_of_stage[partition.stage_of(layer)]);
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
  return decisions().rank_of_stage[decisions().partition.stage_of(layer)];
}

void StepPlan::reorder(Schedule order) const {
  STRATA_CHECK(decisions().order, "schedule.reorder");
  STRATA_CHECK(order.rank_of_stage == decisions().order->rank_of_stage, "schedule.reorder");
  const std::lock_guard lock(state_->mutex);
  order.kind = decisions().schedule;
  state_->decisions.order = std::make_shared<const Schedule>(std::move(order));
  ++state_->reordered;
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

}  // namespace strata
