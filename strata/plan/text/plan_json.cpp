#include "strata/plan/text/plan_text.h"

#include <nlohmann/json.hpp>

#include "strata/plan/search/shared_devices.h"

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
  const HostBytes& host = ledger.host;
  return {{"host_bytes", host.total()},
          {"host",
           {{"weights", host.weights},
            {"gradients", host.gradients},
            {"states", host.states},
            {"activations", host.activations},
            {"staging", host.staging}}},
          {"disk_bytes", ledger.disk_bytes},
          {"disk",
           {{"weights", ledger.on_disk.weights},
            {"gradients", ledger.on_disk.gradients},
            {"states", ledger.on_disk.states}}},
          {"peak_bytes", ledger.peak_bytes},
          {"peak_action", position < 0 ? std::string() : to_string(program[position])},
          {"bytes_at_peak", kinds},
          {"timeline", points}};
}

// The keys "lane" and "lanes" are older than the word track: a written key keeps its name
// (docs/versions.md).
json tracks_of(const RankTimeline& rank) {
  json events = json::array();
  for (const TrackEvent& event : rank.tracks) {
    events.push_back({{"lane", name_of(event.track)},
                      {"layer", event.layer},
                      {"begin_seconds", event.begin_seconds},
                      {"end_seconds", event.end_seconds}});
  }
  return events;
}

json tiers_of(const Plan& plan) {
  const TierLayout& layout = plan.decisions().tiers;
  const LayerTiers& tiers = plan.placement.tiers;
  json link = json::array();
  for (const TierTraffic& rank : plan.traffic) {
    link.push_back({{"to_device_bytes", rank.to_device},
                    {"to_host_bytes", rank.to_host},
                    {"fetches", rank.fetches},
                    {"disk_read_bytes", rank.disk_read},
                    {"disk_written_bytes", rank.disk_written}});
  }
  json all = {{"weights", name_of(tiers.weights)},
              {"gradients", name_of(tiers.gradients)},
              {"states", name_of(tiers.states)},
              {"activations", name_of(tiers.activations)},
              {"window", layout.window},
              {"updates_at_once", layout.updates_at_once},
              {"gradient_buffers", layout.gradient_buffers},
              {"link", link}};
  if (!plan.traffic.empty()) {
    all["bounds"] = {{"unit", plan.bounds.unit}, {"step", plan.bounds.amount},
                     {"link", plan.bounds.link}, {"update", plan.bounds.update},
                     {"disk", plan.bounds.disk}, {"sentence", binding_sentence(plan.bounds)}};
  }
  return all;
}

// An object with one member for each axis.
template <typename ValueOf>
json axes_of(const ValueOf& value_of) {
  json all = json::object();
  for (const AxisInfo& axis : kAxes) all[axis.name] = value_of(axis.id);
  return all;
}

json traffic_of(const RankTraffic& rank) {
  return axes_of([&](Axis axis) -> json {
    return {{"sent_bytes", rank[axis].bytes}, {"seconds", rank[axis].seconds}};
  });
}

json mesh_of(const Plan& plan) {
  const Mesh& mesh = plan.decisions().mesh;
  const ZeroPolicy& zero = plan.decisions().zero;
  json all = axes_of([&](Axis axis) { return mesh[axis]; });
  all.update({{"zero", zero.stage},
              {"shard_ranks", zero.shard_ranks == 0 ? mesh.weight_ranks() : zero.shard_ranks},
              {"reduce", name_of(zero.reduce)},
              {"reduce_reason", plan.reduce_reason},
              {"traffic",
               {{"gradients", name_of(zero.traffic.gradients)},
                {"weights", name_of(zero.traffic.weights)},
                {"block", zero.traffic.block}}},
              {"exposed_seconds",
               axes_of([&](Axis axis) { return plan.communication.exposed_seconds[axis]; })}});
  return all;
}

// Empty if each rank has a device of its own.
json shared_devices_of(const Plan& plan) {
  const SharedDevices& devices = plan.costs.devices;
  if (devices.empty()) return json::object();
  return {{"stages", devices.ranks_on},
          {"bytes", devices.device_bytes},
          {"peak_bytes", shared_peak_bytes(devices, plan.ledger)}};
}

}  // namespace

json to_json(const Plan& plan) {
  json recomputed = json::array(), offloaded = json::array(), python = json::array();
  for (const LayerCost& cost : plan.costs.layers)
    if (cost.runs_python) python.push_back(cost.name);
  for (const int l : plan.decisions().recompute.layers()) {
    recomputed.push_back(plan.costs.layers[l].name);
    if (plan.decisions().tiers[l].offloads_activations())
      offloaded.push_back(plan.costs.layers[l].name);
  }
  json levels = json::object();  // of layers that differ from the mode's level
  for (const int l : plan.decisions().levels.other_layers())
    levels[plan.costs.layers[l].name] = name_of(plan.decisions().levels.of(l));
  json ranks = json::array();
  for (int r = 0; r < plan.schedule().num_ranks(); ++r) {
    const RankTimeline& rank = plan.simulation.ranks[r];
    ranks.push_back({{"busy_seconds", rank.busy_seconds},
                     {"idle_seconds", rank.idle_seconds},
                     {"fetch_wait_seconds", rank.fetch_wait_seconds},
                     {"offload_wait_seconds", rank.offload_wait_seconds},
                     {"launch_wait_seconds", rank.launch_wait_seconds},
                     {"launches", rank.launches},
                     {"recorded_segments", plan.recorded.empty() ? 0 : plan.recorded[r].size()},
                     {"timeline", timeline_of(rank)},
                     {"lanes", tracks_of(rank)},
                     {"memory", memory_of(plan.ledger[r], plan.schedule().programs[r])},
                     {"communication", traffic_of(plan.communication.ranks[r])}});
  }
  return {{"schedule", name_of(plan.decisions().schedule)},
          {"mesh", mesh_of(plan)},
          {"micro_batches", plan.micro_batches},
          {"device_bytes", plan.memory.device.count},
          {"host_bytes", plan.memory.host.count},
          {"disk_bytes", plan.memory.disk.bytes.count},
          {"shared_devices", shared_devices_of(plan)},
          {"tiers", tiers_of(plan)},
          {"python_layers", python},
          {"recompute",
           {{"mode", name_of(plan.memory.recompute)},
            {"layers", recomputed},
            {"levels", levels},
            {"offloaded", offloaded}}},
          {"step_seconds", plan.simulation.step_seconds},
          {"step_amount", {{"count", step_amount(plan).count}, {"unit", step_amount(plan).unit}}},
          {"flops_utilisation", flops_utilisation(plan)},
          {"bubble", plan.simulation.bubble},
          {"stages", stages_of(plan)},
          {"ranks", ranks}};
}

}  // namespace strata
