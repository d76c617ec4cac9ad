// Exposed seconds are the difference of two simulated steps, with and without an axis, because only
// the simulator knows what overlaps.
#include "strata/plan/simulate/communication.h"

#include <algorithm>

#include "strata/plan/simulate/shard_bytes.h"

namespace strata {
namespace {

double seconds_at(double bytes, double rate) { return rate > 0 ? bytes / rate : 0; }

// The bytes that one of n ranks sends when they scatter or gather `bytes`.
double scattered(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

// Processes have equally many ranks, in order. How many of those ranks are in one process:
int ranks_in_process(const Mesh& mesh, Axis axis, int processes) {
  const int ranks = mesh.traffic_ranks(axis), stride = mesh.span(axis) / ranks;
  return std::clamp(mesh.size() / processes / stride, 1, ranks);
}

bool leaves_process(const Mesh& mesh, Axis axis, int processes) {
  return ranks_in_process(mesh, axis, processes) < mesh.traffic_ranks(axis);
}

// While a layer's signs are on their way, the rank works on the next two layers, so a layer waits
// for one message's latency.
void add_sign_seconds(CostTable& costs, const MeshRequest& request) {
  const int ranks = request.axes.weight_ranks();
  const ShardLayout layout{.replicas = ranks, .shards = request.zero.shards(ranks)};
  const LinkSpeed link = request.between_groups();
  const std::vector<ShardBytes> bytes = shard_bytes(costs, layout, request.reads_in_place);
  for (std::size_t l = 0; l < bytes.size(); ++l) {
    if (bytes[l].own_gradients == 0) continue;
    const double sent = replica_traffic(bytes[l], layout, /*sends_signs=*/true).signs;
    costs.layers[l].update_seconds +=
        request.signs_per_step * (seconds_at(sent, link.rate) + link.latency);
  }
}

// Of the ranks that add gradients: those of one shard group if groups send signs, those of one
// replica if replicas train apart.
LinkSpeed link_of_sums(const MeshRequest& mesh) {
  if (mesh.sends_signs) return mesh.in_group();
  const Axis axis = mesh.outer_every > 0 ? Axis::kContext : Axis::kData;
  return {mesh.rates[axis], mesh.latency[axis]};
}

// After the last step of a round, layers are summed one after another: their parts, and then the
// sums. In an average step a layer waits for its share of that.
void add_outer_seconds(CostTable& costs, const MeshRequest& request) {
  if (request.axes[Axis::kData] == 1) return;
  for (LayerCost& layer : costs.layers) {
    if (layer.weight_bytes == 0) continue;
    const ShardBytes bytes =
        shard_bytes(layer, {}, {}, costs.weight_element_bytes, request.reads_in_place, {});
    layer.update_seconds +=
        seconds_at(outer_traffic(bytes, request), request.rates[Axis::kData]) +
        2 * request.latency[Axis::kData] / static_cast<double>(request.outer_every);
  }
}

}  // namespace

MeshRequest mesh_request(const MeshOptions& options) {
  return {
      .axes = options.axes, .zero = options.zero, .sequence_parallel = options.sequence_parallel};
}

AxisRates link_rates(const LinkLimit& link, const Mesh& mesh, int processes) {
  return AxisRates::made_by([&](Axis axis) {
    if (!leaves_process(mesh, axis, processes)) return kThreadRates[axis];
    if (link.bytes_per_second == 0) return kProcessRates[axis];
    const int here = mesh.size() / processes;
    // Of each stage, one rank of a line sends over a border between processes.
    if (axis == Axis::kPipeline) return link.bytes_per_second / std::min(here, mesh.stage_size());
    // A rank sends as much to each rank of its line, and only a part of them is elsewhere. A ring's
    // neighbours are mostly in the same process, so its rate is at least this.
    const int ranks = mesh.traffic_ranks(axis);
    const double others = ranks - 1;
    const double elsewhere = ranks - ranks_in_process(mesh, axis, processes);
    return link.bytes_per_second / here * others / elsewhere;
  });
}

PerAxis<double> link_latency(const LinkLimit& link, const Mesh& mesh, int processes) {
  return PerAxis<double>::made_by(
      [&](Axis axis) { return leaves_process(mesh, axis, processes) ? link.latency_seconds : 0; });
}

double all_reduce_bytes(double bytes, int ranks) { return 2 * scattered(bytes, ranks); }

ReplicaTraffic replica_traffic(const ShardBytes& layer, const ShardLayout& layout,
                               bool sends_signs) {
  constexpr double kGradientBits = 32;
  const auto gradients =
      static_cast<double>(layer.gradient_code > 0 ? layer.gradient_code : layer.own_gradients);
  // Gradients are scattered inside a shard group, then each shard is summed over the groups.
  const int ranks = layout.shards, groups = layout.replicas / ranks;
  const double over_groups = all_reduce_bytes(gradients / ranks, groups);
  ReplicaTraffic traffic{.reduce = scattered(gradients, ranks)};
  if (sends_signs) {
    traffic.signs = over_groups / kGradientBits;
  } else {
    traffic.reduce += over_groups;
  }
  if (layer.shards.weights) {
    traffic.fetch = scattered(
        static_cast<double>(layer.weight_code > 0 ? layer.weight_code : layer.fetched_weights),
        ranks);
  } else {
    traffic.gather = scattered(static_cast<double>(layer.weights), ranks);
  }
  return traffic;
}

// As many as the fp32 gradients of its own weights have, to and from the ranks that sum the parts.
double outer_traffic(const ShardBytes& layer, const MeshRequest& mesh) {
  if (mesh.outer_every == 0) return 0;
  return all_reduce_bytes(static_cast<double>(layer.own_gradients), mesh.axes[Axis::kData]) /
         static_cast<double>(mesh.outer_every);
}

CollectiveSeconds collective_seconds(const CostTable& costs, const ShardLayout& layout,
                                     const MeshRequest& mesh) {
  const LinkSpeed group = mesh.in_group(), link = link_of_sums(mesh);
  CollectiveSeconds seconds{.gather_latency = group.latency};
  for (const ShardBytes& layer : shard_bytes(costs, layout, /*reads_in_place=*/true)) {
    const ReplicaTraffic traffic = replica_traffic(layer, layout, mesh.sends_signs);
    seconds.fetch.push_back(seconds_at(traffic.fetch, group.rate));
    seconds.reduce.push_back(seconds_at(traffic.reduce, link.rate));
    seconds.gather.push_back(seconds_at(traffic.gather, group.rate));
  }
  // Sums of squares go to the first rank of the mesh and back.
  for (const AxisInfo& axis : kAxes)
    seconds.norm_latency = std::max(seconds.norm_latency, 2 * mesh.latency[axis.id]);
  if (mesh.trust_ratios && layout.shards > 1) seconds.norm_latency += group.latency;
  if (mesh.sends_signs && layout.shards == 1) {
    seconds.reduce.clear();  // add_sign_seconds() counts what updates send instead
    return seconds;
  }
  const bool gathers_sums = layout.shards < layout.replicas && !mesh.sends_signs;
  seconds.reduce_latency = (gathers_sums ? 2 : 1) * link.latency;
  seconds.norm_latency += 2 * link.latency;  // before, to the first replica and back
  return seconds;
}

CostTable with_mesh_seconds(CostTable costs, const MeshRequest& request) {
  const auto sum_seconds = [&](std::int64_t bytes) {
    return seconds_at(all_reduce_bytes(static_cast<double>(bytes), request.axes[Axis::kTensor]),
                      request.rates[Axis::kTensor]);
  };
  const auto context_seconds = [&](double bytes, int messages) {
    return seconds_at(bytes, request.rates[Axis::kContext]) +
           messages * request.latency[Axis::kContext];
  };
  for (LayerCost& layer : costs.layers) {
    const LayerWork& work = layer.work;
    layer.forward_seconds +=
        sum_seconds(work.forward_sum_bytes) +
        context_seconds(work.forward_context_bytes, work.forward_context_messages);
    layer.backward_seconds +=
        sum_seconds(work.backward_sum_bytes) +
        context_seconds(work.backward_context_bytes, work.backward_context_messages);
  }
  for (ValueCost& value : costs.values) {
    if (value.transfer_seconds > 0) continue;
    value.transfer_seconds =
        seconds_at(static_cast<double>(value.bytes), request.rates[Axis::kPipeline]);
  }
  costs.latency_seconds = request.latency[Axis::kPipeline];
  const int shards = request.zero.shards(request.update_mesh().weight_ranks());
  if (shards > 1) {
    for (LayerCost& layer : costs.layers) layer.update_seconds /= shards;
  }
  if (request.sends_signs) add_sign_seconds(costs, request);
  if (request.outer_every > 0) add_outer_seconds(costs, request);
  return costs;
}

namespace {

class Counter {
 public:
  Counter(const CostTable& costs, const MeshRequest& mesh, const ShardLayout& layout)
      : costs_(costs), mesh_(mesh) {
    for (const ShardBytes& layer : shard_bytes(costs, layout, mesh.reads_in_place)) {
      replicas_.push_back(replica_traffic(layer, layout, mesh.sends_signs));
      replicas_.back().signs *= mesh.signs_per_step;
      outer_bytes_.push_back(outer_traffic(layer, mesh));
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
    if (is_compute(action.op)) {
      count_tensor(action);
      count_context(action);
    }
    if (is_send(action.op)) count_send(action);
    const auto [begin, end] = action.layers;
    for (int l = begin; l < end; ++l) {
      if (action.op == Op::kReduceGradients)
        add(traffic_[Axis::kData], replicas_[l].reduce, link_of_sums(mesh_).rate);
      if (action.op == Op::kUpdate) {
        add(traffic_[Axis::kData], outer_bytes_[l], mesh_.rates[Axis::kData]);
        add(traffic_[Axis::kData], replicas_[l].signs, mesh_.between_groups().rate);
      }
      if (action.op == Op::kPrefetchWeights)
        add(traffic_[Axis::kData], replicas_[l].fetch, mesh_.in_group().rate);
      if (action.op == Op::kGatherWeights)
        add(traffic_[Axis::kData], replicas_[l].gather, mesh_.in_group().rate);
    }
  }

  void count_tensor(const Action& action) {
    if (mesh_.axes[Axis::kTensor] == 1) return;
    for (int l = action.layers.begin; l < action.layers.end; ++l) {
      const LayerWork& work = costs_.layers[l].work;
      const std::int64_t bytes = makes_input_gradients(action.op)   ? work.backward_sum_bytes
                                 : action.op == Op::kBackwardWeight ? 0
                                                                    : work.forward_sum_bytes;
      const double scaled = static_cast<double>(bytes) * costs_.scale(action.micro_batch);
      add(traffic_[Axis::kTensor], all_reduce_bytes(scaled, mesh_.axes[Axis::kTensor]),
          mesh_.rates[Axis::kTensor]);
    }
  }

  void count_context(const Action& action) {
    for (int l = action.layers.begin; l < action.layers.end; ++l) {
      const LayerWork& work = costs_.layers[l].work;
      const double bytes = makes_input_gradients(action.op)   ? work.backward_context_bytes
                           : action.op == Op::kBackwardWeight ? 0
                                                              : work.forward_context_bytes;
      add(traffic_[Axis::kContext], bytes * costs_.scale(action.micro_batch),
          mesh_.rates[Axis::kContext]);
    }
  }

  void count_send(const Action& action) {
    const bool tie = action.op == Op::kSendTiedGradient || action.op == Op::kSendTiedWeight;
    if (tie) {
      const std::int64_t bytes = tied_bytes(costs_.layers[action.consumer], action.op);
      return add(traffic_[Axis::kPipeline], static_cast<double>(bytes),
                 mesh_.rates[Axis::kPipeline]);
    }
    const ValueCost& value = costs_.values[action.value];
    const double scale = costs_.scale(action.micro_batch);
    add(traffic_[Axis::kPipeline], static_cast<double>(value.bytes) * scale, 0);
    const double measured = value.transfer_seconds;
    const double rate = mesh_.rates[Axis::kPipeline];
    traffic_[Axis::kPipeline].seconds +=
        scale * (measured > 0 ? measured
                 : rate > 0   ? static_cast<double>(value.bytes) / rate
                              : 0);
  }

  const CostTable& costs_;
  const MeshRequest& mesh_;
  std::vector<ReplicaTraffic> replicas_;  // per layer
  std::vector<double> outer_bytes_;       // per layer
  RankTraffic traffic_;
};

}  // namespace

Communication communication_of(const StepPlan& steps, int micro_batches, const CostTable& costs,
                               const MeshRequest& mesh, const TierSeconds& tier_seconds,
                               const RecordedPrograms& recorded) {
  Communication result;
  const Schedule& schedule = steps.proposed(micro_batches);
  Counter count(costs, mesh, steps.shards());
  for (const Program& program : schedule.programs) result.ranks.push_back(count(program));

  const auto step = [&](const CostTable& table, const MeshRequest& request) {
    return simulate(schedule, steps.dataflow(), steps.decisions().partition, table,
                    collective_seconds(table, steps.shards(), request), tier_seconds, recorded)
        .step_seconds;
  };
  const auto without = [&](Axis axis) {
    MeshRequest request = mesh;
    request.rates[axis] = request.latency[axis] = 0;
    if (axis == Axis::kData) request.shard_link = request.replica_link = LinkSpeed{};
    return request;
  };
  const CostTable all = with_mesh_seconds(costs, mesh);
  const double whole = step(all, mesh);
  CostTable no_transfers = all;
  for (ValueCost& value : no_transfers.values) value.transfer_seconds = 0;
  no_transfers.latency_seconds = 0;
  const auto exposed = [&](double rest) { return std::max(0.0, whole - rest); };
  result.exposed_seconds[Axis::kPipeline] = exposed(step(no_transfers, without(Axis::kPipeline)));
  const MeshRequest no_replicas = without(Axis::kData);
  result.exposed_seconds[Axis::kData] =
      exposed(step(with_mesh_seconds(costs, no_replicas), no_replicas));
  for (const Axis axis : {Axis::kContext, Axis::kTensor})
    result.exposed_seconds[axis] = exposed(step(with_mesh_seconds(costs, without(axis)), mesh));
  return result;
}

}  // namespace strata
