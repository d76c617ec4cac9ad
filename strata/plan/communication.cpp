#include "strata/plan/communication.h"

#include <algorithm>

namespace strata {
namespace {

class Counter {
 public:
  Counter(const CostTable& costs, const MeshRequest& mesh, const ShardLayout& layout)
      : costs_(costs), mesh_(mesh) {
    for (const ShardBytes& layer : shard_bytes(costs, layout, mesh.reads_in_place)) {
      replicas_.push_back(replica_traffic(layer, layout));
    }
  }

  RankTraffic operator()(const Program& program) {
    traffic_ = {};
    for (const Action& action : program) count(action);
    return traffic_;
  }

 private:
  static void add(AxisTraffic& axis, double bytes, double rate) {
    axis.bytes += bytes;
    if (rate > 0) axis.seconds += bytes / rate;
  }

  void count(const Action& action) {
    if (is_compute(action.op)) count_tensor(action);
    if (is_send(action.op)) count_send(action);
    const auto [begin, end] = action.layers;
    for (int l = begin; l < end; ++l) {
      if (action.op == Op::kReduceGradients) add(traffic_.dp, replicas_[l].reduce, mesh_.rates.dp);
      if (action.op == Op::kPrefetchWeights) add(traffic_.dp, replicas_[l].fetch, mesh_.rates.dp);
      if (action.op == Op::kGatherWeights) add(traffic_.dp, replicas_[l].gather, mesh_.rates.dp);
    }
  }

  void count_tensor(const Action& action) {
    if (mesh_.tp == 1 || mesh_.tensor.empty()) return;
    for (int l = action.layers.begin; l < action.layers.end; ++l) {
      const TensorTraffic& layer = mesh_.tensor[l];
      const std::int64_t bytes =
          action.op == Op::kBackward ? layer.backward_bytes : layer.forward_bytes;
      const double scaled = static_cast<double>(bytes) * costs_.scale(action.micro_batch);
      add(traffic_.tp, all_reduce_bytes(scaled, mesh_.tp), mesh_.rates.tp);
    }
  }

  void count_send(const Action& action) {
    const bool tie = action.op == Op::kSendTiedGradient || action.op == Op::kSendTiedWeight;
    if (tie) {
      const auto bytes = static_cast<double>(costs_.layers[action.consumer].replica_bytes);
      return add(traffic_.pp, bytes, mesh_.rates.pp);
    }
    const ValueCost& value = costs_.values[action.value];
    const double scale = costs_.scale(action.micro_batch);
    add(traffic_.pp, static_cast<double>(value.bytes) * scale, 0);
    const double measured = value.transfer_seconds;
    const double rate = mesh_.rates.pp;
    traffic_.pp.seconds += scale * (measured > 0 ? measured
                                    : rate > 0   ? static_cast<double>(value.bytes) / rate
                                                 : 0);
  }

  const CostTable& costs_;
  const MeshRequest& mesh_;
  std::vector<ReplicaTraffic> replicas_;  // per layer
  RankTraffic traffic_;
};

}  // namespace

Communication communication_of(const StepPlan& steps, int micro_batches, const CostTable& costs,
                               const MeshRequest& mesh) {
  Communication result;
  const Schedule& schedule = steps.proposed(micro_batches);
  Counter count(costs, mesh, steps.shards());
  for (const Program& program : schedule.programs) result.ranks.push_back(count(program));

  const auto step = [&](const CostTable& table, double dp_rate) {
    return simulate(schedule, steps.dataflow(), steps.decisions().partition, table,
                    collective_seconds(table, steps.shards(), dp_rate))
        .step_seconds;
  };
  const CostTable all = with_mesh_seconds(costs, mesh);
  const double whole = step(all, mesh.rates.dp);
  CostTable no_transfers = all;
  for (ValueCost& value : no_transfers.values) value.transfer_seconds = 0;
  MeshRequest no_sums = mesh;
  no_sums.rates.tp = 0;
  result.exposed_pp_seconds = std::max(0.0, whole - step(no_transfers, mesh.rates.dp));
  result.exposed_dp_seconds = std::max(0.0, whole - step(all, 0));
  result.exposed_tp_seconds =
      std::max(0.0, whole - step(with_mesh_seconds(costs, no_sums), mesh.rates.dp));
  return result;
}

}  // namespace strata
