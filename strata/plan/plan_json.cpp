#include "strata/plan/plan_text.h"

#include <nlohmann/json.hpp>

namespace strata {
namespace {

using nlohmann::json;

json stages_of(const Plan& plan) {
  json stages = json::array();
  const Partition& partition = plan.decisions().partition;
  for (int stage = 0; stage < partition.num_stages(); ++stage) {
    const LayerRange layers = partition.layers(stage);
    json names = json::array();
    for (int l = layers.begin; l < layers.end; ++l) names.push_back(plan.costs.layers[l].name);
    stages.push_back({{"rank", plan.schedule().rank_of_stage[stage]},
                      {"first_layer", layers.begin},
                      {"layers", names}});
  }
  return stages;
}

json timeline_of(const RankTimeline& rank) {
  json events = json::array();
  for (const TraceEvent& event : rank.events) {
    events.push_back({{"kind", kind_of(event.op)},
                      {"stage", event.stage},
                      {"micro_batch", event.micro_batch},
                      {"first_layer", event.first_layer},
                      {"begin_seconds", event.begin_seconds},
                      {"end_seconds", event.end_seconds}});
  }
  return events;
}

json memory_of(const RankLedger& ledger, const Program& program) {
  json kinds;
  for (int k = 0; k < kNumByteKinds; ++k) {
    const auto kind = static_cast<ByteKind>(k);
    kinds[name_of(kind)] = ledger.at_peak[kind];
  }
  json points = json::array();
  for (const MemoryPoint& point : ledger.timeline) {
    points.push_back(json::array({point.seconds, point.bytes}));
  }
  const int position = ledger.peak_position;
  return {{"peak_bytes", ledger.peak_bytes},
          {"peak_action", position < 0 ? std::string() : to_string(program[position])},
          {"bytes_at_peak", kinds},
          {"timeline", points}};
}

json axis_of(const AxisTraffic& axis) {
  return {{"sent_bytes", axis.bytes}, {"seconds", axis.seconds}};
}

json traffic_of(const RankTraffic& rank) {
  return {{"pp", axis_of(rank.pp)}, {"dp", axis_of(rank.dp)}, {"tp", axis_of(rank.tp)}};
}

json mesh_of(const Plan& plan) {
  const Communication& all = plan.communication;
  const ZeroPolicy& zero = plan.decisions().zero;
  return {{"pp", plan.decisions().mesh.pp},
          {"dp", plan.mesh.dp},
          {"tp", plan.mesh.tp},
          {"zero", zero.stage},
          {"shard_ranks", zero.shard_ranks == 0 ? plan.mesh.dp : zero.shard_ranks},
          {"reduce", name_of(zero.reduce)},
          {"reduce_reason", plan.reduce_reason},
          {"exposed_seconds",
           {{"pp", all.exposed_pp_seconds},
            {"dp", all.exposed_dp_seconds},
            {"tp", all.exposed_tp_seconds}}}};
}

}  // namespace

json to_json(const Plan& plan) {
  json recomputed = json::array();
  for (const int l : plan.decisions().recompute.layers())
    recomputed.push_back(plan.costs.layers[l].name);
  json ranks = json::array();
  for (int r = 0; r < plan.schedule().num_ranks(); ++r) {
    const RankTimeline& rank = plan.simulation.ranks[r];
    ranks.push_back({{"busy_seconds", rank.busy_seconds},
                     {"idle_seconds", rank.idle_seconds},
                     {"timeline", timeline_of(rank)},
                     {"memory", memory_of(plan.ledger[r], plan.schedule().programs[r])},
                     {"communication", traffic_of(plan.communication.ranks[r])}});
  }
  return {{"schedule", name_of(plan.decisions().schedule)},
          {"mesh", mesh_of(plan)},
          {"micro_batches", plan.micro_batches},
          {"device_bytes", plan.memory.device.count},
          {"recompute", {{"mode", name_of(plan.memory.recompute)}, {"layers", recomputed}}},
          {"step_seconds", plan.simulation.step_seconds},
          {"bubble", plan.simulation.bubble},
          {"stages", stages_of(plan)},
          {"ranks", ranks}};
}

}  // namespace strata
