#include "strata/plan/text/plan_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/schedule/grid.h"

namespace strata {
namespace {

// What the mesh exchanges; empty for a pipeline alone.

bool is_pipeline_alone(const Plan& plan) { return plan.decisions().mesh.stage_size() == 1; }

std::string traffic_table(const Plan& plan) {
  TextTable table("r" + std::string(kAxes.size(), 'r'));
  std::vector<std::string> row{"sent by rank"};
  for (const AxisInfo& axis : kAxes) row.emplace_back(axis.name);
  table.add_row(row);
  for (std::size_t r = 0; r < plan.communication.ranks.size(); ++r) {
    row = {std::to_string(r)};
    for (const AxisInfo& axis : kAxes) {
      const double bytes = plan.communication.ranks[r][axis.id].bytes;
      row.push_back(format_bytes(static_cast<std::int64_t>(bytes + 0.5)));
    }
    table.add_row(row);
  }
  return table.text();
}

std::string seconds_text(const PerAxis<double>& seconds) {
  return axes_text(
      PerAxis<std::string>::made_by([&](Axis axis) { return format_seconds(seconds[axis]); }));
}

std::string time_lines(const Plan& plan) {
  const auto busiest = PerAxis<double>::made_by([&](Axis axis) {
    double most = 0;
    for (const RankTraffic& rank : plan.communication.ranks)
      most = std::max(most, rank[axis].seconds);
    return most;
  });
  return "moving     " + seconds_text(busiest) + " on the busiest rank\nexposed    " +
         seconds_text(plan.communication.exposed_seconds) + " of the step\n";
}

std::string ranks_text(const Plan& plan) {
  const Mesh& mesh = plan.decisions().mesh;
  std::string text = std::to_string(mesh.size()) + (mesh.size() == 1 ? " rank" : " ranks");
  if (is_pipeline_alone(plan)) return text;
  text += " (" + mesh.text(" × ");
  if (plan.decisions().zero.stage > 0)
    text += ", zero " + std::to_string(plan.decisions().zero.stage);
  return text + ")";
}

std::string counted(std::size_t count, const std::string& noun, const std::string& plural = "s") {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : plural);
}

std::string reduce_text(const Plan& plan) {
  const bool each = plan.decisions().zero.reduce == ReduceMode::kEach;
  return each ? "after each micro-batch" : "once a step";
}

std::string sign_text(const Plan& plan) {
  const bool always = plan.mesh.signs_per_step == 1;
  const int shards = plan.steps.shards().shards;
  std::string text = "one bit a weight, in the update";
  if (shards > 1)
    text = "fp32 in each group of " + std::to_string(shards) + " replicas that share shards, " +
           reduce_text(plan) + "; one bit a weight between groups, in the update";
  if (!always)
    return text + " of " + format_double(100 * plan.mesh.signs_per_step, 1) +
           " % of the last steps; earlier ones send more";
  return text + "; steps that sum gradients, up to train.optimizer.freeze_step, send " +
         (shards > 1 ? "fp32 between groups, too" : "32 times as much");
}

std::string traffic_formats(const Plan& plan) {
  const Traffic& traffic = plan.decisions().zero.traffic;
  if (traffic.is_full() || plan.decisions().mesh.weight_ranks() == 1) return "";
  const bool full_ties =
      traffic.weights != TrafficFormat::kFull && !plan.steps.dataflow().ties.empty();
  return std::string("traffic    gradients ") + name_of(traffic.gradients) + ", weights " +
         name_of(traffic.weights) + ": one scale for " + std::to_string(traffic.block) +
         " elements of a matrix" + (full_ties ? "; weights of tied layers full" : "") + "\n";
}

std::string mesh_text(const Plan& plan) {
  if (is_pipeline_alone(plan)) return "";
  std::string text = traffic_table(plan) + "\n";
  if (plan.decisions().mesh.weight_ranks() > 1 && plan.mesh.sends_signs) {
    text += "reduce     " + sign_text(plan) + "\n";
  } else if (plan.mesh.outer_every > 0 && plan.decisions().mesh[Axis::kData] > 1) {
    text += "outer      replicas train apart and average their weights every " +
            counted(static_cast<std::size_t>(plan.mesh.outer_every), "step") +
            ": bytes and seconds of dp are those of an average step\n";
  } else if (plan.decisions().mesh.weight_ranks() > 1) {
    text += "reduce     " + reduce_text(plan) + " (" + plan.reduce_reason + ")\n";
  }
  return text + traffic_formats(plan) + time_lines(plan);
}

constexpr int kMostNames = 4;  // names of recomputed layers, before "and 8 more"

std::string headline(const Plan& plan) {
  std::string text = std::string(name_of(plan.decisions().schedule)) + " · " + ranks_text(plan);
  if (plan.decisions().virtual_stages > 1) {
    text += " × " + counted(plan.decisions().virtual_stages, "stage");
  }
  return text + " · " + counted(plan.costs.layers.size(), "layer") + " · " +
         counted(plan.micro_batches, "micro-batch", "es") + " a step\n";
}

std::string names_of(const Plan& plan, LayerRange layers) {
  const std::string& first = plan.costs.layers[layers.begin].name;
  if (layers.size() == 1) return first;
  return first + " .. " + plan.costs.layers[layers.end - 1].name;
}

// Times are for one full micro-batch; a recompute counts as part of its backward.
std::string stage_table(const Plan& plan) {
  TextTable table("rrrlrrr");
  table.add_row({"stage", "rank", "layers", "", "weights", "forward", "backward"});
  const Partition& partition = plan.decisions().partition;
  for (int stage = 0; stage < partition.num_stages(); ++stage) {
    const LayerRange layers = partition.layers(stage);
    LayerCost sum;
    for (int l = layers.begin; l < layers.end; ++l) {
      const LayerCost& cost = plan.costs.layers[l];
      sum.weight_bytes += cost.weight_bytes;
      sum.forward_seconds += cost.forward_seconds;
      sum.backward_seconds += cost.backward_seconds;
      if (plan.decisions().recompute.has(l)) sum.backward_seconds += cost.forward_seconds;
    }
    table.add_row({std::to_string(stage), std::to_string(plan.schedule().rank_of_stage[stage]),
                   std::to_string(layers.size()), names_of(plan, layers),
                   format_bytes(sum.weight_bytes), format_seconds(sum.forward_seconds),
                   format_seconds(sum.backward_seconds)});
  }
  return table.text();
}

std::string cut_grid(const Plan& plan, int columns) {
  const auto digits = [](int count) {
    return static_cast<int>(std::to_string(std::max(count - 1, 0)).size());
  };
  int cell = 2 + digits(plan.micro_batches);
  if (plan.decisions().virtual_stages > 1) cell += 1 + digits(plan.decisions().virtual_stages);
  const int label = 6 + digits(plan.decisions().mesh[Axis::kPipeline]);
  return draw_grid(plan.schedule(), {.max_columns = std::max(1, (columns - label) / cell)});
}

// " (block0, block1, block2, block3 and 8 more)"
std::string some_names(const Plan& plan, const std::vector<int>& layers) {
  const int shown = std::min<int>(kMostNames, static_cast<int>(layers.size()));
  std::string text = " (";
  for (int i = 0; i < shown; ++i) text += (i ? ", " : "") + plan.costs.layers[layers[i]].name;
  const int more = static_cast<int>(layers.size()) - shown;
  return text + (more > 0 ? " and " + std::to_string(more) + " more)" : ")");
}

std::vector<int> layers_at(const RecomputeLevels& levels, Recompute level) {
  std::vector<int> layers;
  for (const int layer : levels.other_layers())
    if (levels.of(layer) == level) layers.push_back(layer);
  return layers;
}

std::string recompute_line(const Plan& plan) {
  const RecomputeMode mode = plan.memory.recompute;
  const std::string indent = "recompute  ";
  std::string text = indent + name_of(mode), separator = ": ";
  const auto add = [&](const std::string& what, const std::vector<int>& layers) {
    if (layers.empty()) return;
    text += separator + what + std::to_string(layers.size()) + " of " +
            counted(plan.costs.layers.size(), "layer") + some_names(plan, layers);
    separator = "\n" + std::string(indent.size() + std::strlen(name_of(mode)) + 2, ' ');
  };
  add("", plan.decisions().recompute.layers());
  for (const Recompute level : {Recompute::kAttention, Recompute::kProducts})
    add(std::string(name_of(level)) + " in ", layers_at(plan.decisions().levels, level));
  if (separator == ": " && mode == RecomputeMode::kAuto) text += ": no layer needs it";
  return text + "\n";
}

// Layers that hold the interpreter's lock, and how much of the computation that is.
std::string python_line(const Plan& plan) {
  std::vector<int> layers;
  double locked = 0, all = 0;
  for (int l = 0; l < static_cast<int>(plan.costs.layers.size()); ++l) {
    const LayerCost& cost = plan.costs.layers[l];
    const double seconds = cost.forward_seconds + cost.backward_seconds;
    all += seconds;
    if (!cost.runs_python) continue;
    locked += seconds;
    layers.push_back(l);
  }
  if (layers.empty()) return "";
  std::string text = "python     " + counted(layers.size(), "layer") + some_names(plan, layers) +
                     (layers.size() == 1 ? " holds" : " hold") + " the interpreter's lock";
  if (all > 0)
    text += " for up to " + std::to_string(std::lround(100 * locked / all)) +
            " % of the computation; ranks of a process take turns";
  return text + "\n";
}

// Settings without effect here: a field for a larger mesh or a smaller device may stay in a recipe.
std::string idle_lines(const Plan& plan) {
  std::string text;
  if (plan.decisions().zero.stage > 0 && plan.decisions().mesh.weight_ranks() == 1)
    text += "no effect  mesh.zero " + std::to_string(plan.decisions().zero.stage) +
            ": with mesh.dp 1 there is no other replica to share with\n";
  if (!plan.decisions().zero.traffic.is_full() && plan.decisions().mesh.weight_ranks() == 1)
    text += "no effect  mesh.traffic: with mesh.dp x mesh.cp 1 there is no other rank to send to\n";
  const bool sharded = plan.decisions().zero.stage == 3 && plan.decisions().mesh.weight_ranks() > 1;
  if (plan.memory.window > 0 && !plan.placement.tiers.fetches_weights() && !sharded)
    text += "no effect  memory.window " + std::to_string(plan.memory.window) +
            ": no weights leave the device\n";
  return text;
}

// The recomputed layers whose inputs are offloaded, on the rank that moves most.
std::string offloaded_line(const Plan& plan) {
  std::vector<int> layers;
  for (const int l : plan.decisions().recompute.layers())
    if (plan.decisions().tiers[l].offloads_activations()) layers.push_back(l);
  if (layers.empty()) return "";
  const TierSeconds seconds = tier_seconds(plan, plan.costs);
  double micro_batches = 0;
  for (int m = 0; m < plan.micro_batches; ++m) micro_batches += plan.costs.scale(m);
  std::vector<double> link(plan.ledger.size()), again(plan.ledger.size());
  for (const int l : layers)
    link[plan.steps.pipeline_rank(l)] += micro_batches * seconds[l].activations_offload_seconds;
  for (const int l : plan.decisions().recompute.layers())
    again[plan.steps.pipeline_rank(l)] += micro_batches * plan.costs.layers[l].forward_seconds;
  return "offloaded  inputs of " + counted(layers.size(), "whole layer") +
         some_names(plan, layers) + "; " + format_seconds(*std::ranges::max_element(link)) +
         " of the link each way, " + format_seconds(*std::ranges::max_element(again)) +
         " of forwards run again\n";
}

// Disks wear out with the bytes written.
std::string disk_line(const Plan& plan, const TierTraffic& most) {
  constexpr double kDaySeconds = 86400;
  std::string text = "disk       " + format_bytes(disk_bytes(plan.ledger)) + " on the fullest rank";
  if (plan.memory.disk.bytes.count > 0)
    text += ", budget " + format_bytes(plan.memory.disk.bytes.count);
  text += "; " + format_bytes(most.disk_read) + " read and " + format_bytes(most.disk_written) +
          " written a step";
  const double steps = kDaySeconds / std::max(plan.simulation.step_seconds, 1e-9);
  const double day = static_cast<double>(most.disk_written) * steps;
  if (day < 1e18) text += ", " + format_bytes(static_cast<std::int64_t>(day)) + " a day";
  return text + "\n";
}

// When layers on the host are updated, and where their gradients wait.
std::string updates_text(const Plan& plan) {
  const TierLayout& tiers = plan.decisions().tiers;
  const LayerSet tied = tied_layers(plan.steps.dataflow());
  int on_host = 0, at_once = 0;
  for (int l = 0; l < static_cast<int>(tiers.layers.size()); ++l) {
    on_host += tiers[l].updates_on_host() ? 1 : 0;
    at_once += is_updated_at_once(tiers, plan.steps.shards()[l], l, tied) ? 1 : 0;
  }
  if (at_once == 0) return ", updated once the norm is known";
  const bool all = at_once == on_host;
  std::string text = ", ";
  if (!all) text += std::to_string(at_once) + " of " + counted(on_host, "layer") + " ";
  text += "updated as soon as a gradient lands";
  if (tiers.gradient_buffers > 0)
    text += std::string(all ? ", " : ", their ") + "gradients in " +
            counted(tiers.gradient_buffers, "host buffer") + " by turns";
  return text;
}

// What leaves the device; empty for a plan of one tier.
std::string tiers_text(const Plan& plan) {
  if (plan.traffic.empty()) return "";
  const TierLayout& tiers = plan.decisions().tiers;
  std::string text = "tiers      " + placement_text(plan.placement);
  if (plan.placement.tiers.fetches_weights()) text += ", window " + counted(tiers.window, "layer");
  text += updates_text(plan);
  text += "\n";
  text += "host       " + format_bytes(host_bytes(plan.ledger)) + " on the fullest rank";
  if (plan.memory.host.count > 0) text += ", budget " + format_bytes(plan.memory.host.count);
  TierTraffic most;
  double fetch = 0, offload = 0;
  for (std::size_t r = 0; r < plan.traffic.size(); ++r) {
    const TierTraffic& rank = plan.traffic[r];
    most.to_device = std::max(most.to_device, rank.to_device);
    most.to_host = std::max(most.to_host, rank.to_host);
    most.disk_read = std::max(most.disk_read, rank.disk_read);
    most.disk_written = std::max(most.disk_written, rank.disk_written);
    fetch = std::max(fetch, plan.simulation.ranks[r].fetch_wait_seconds);
    offload = std::max(offload, plan.simulation.ranks[r].offload_wait_seconds);
  }
  text += "\nlink       " + format_bytes(most.to_device) + " to the device, " +
          format_bytes(most.to_host) + " to the host a step\n";
  if (disk_bytes(plan.ledger) > 0) text += disk_line(plan, most);
  text += "rates      " + plan.rates.text + "\n";
  text += "waiting    " + format_seconds(fetch) + " for weights, " + format_seconds(offload) +
          " for gradients to leave\n";
  return text + "binding    " + binding_sentence(plan.bounds) + "\n";
}

// For a model that reads embeddings: the seconds of its steps outside of the dense net.
std::string rows_line(const Plan& plan) {
  const RowsCost& rows = plan.costs.rows;
  if (rows.beside_seconds <= 0 && rows.work_seconds <= 0) return "";
  double waited = 0;
  for (const RankTimeline& rank : plan.simulation.ranks)
    for (const TraceEvent& event : rank.events)
      if (event.op == Op::kFetchRows)
        waited = std::max(waited, event.end_seconds - event.begin_seconds - rows.rank_seconds);
  std::string text = "rows       " + format_seconds(rows.rank_seconds) + " a step on the rank, " +
                     format_seconds(std::max(rows.beside_seconds, rows.work_seconds)) +
                     " alongside, " + format_seconds(rows.wait_seconds) +
                     " from gradients to updated rows";
  if (rows.staleness > 0)
    text +=
        ", which " + counted(rows.staleness, "step") + (rows.staleness == 1 ? " hides" : " hide");
  return text + "; waits " + format_seconds(std::max(0.0, waited)) + "\n";
}

// For devices with a host that enqueues their work: how it does so, and what that costs a step.
std::string launch_line(const Plan& plan) {
  if (plan.costs.launch.kernel <= 0) return "";
  double waited = 0;
  int kernels = 0;
  for (const RankTimeline& rank : plan.simulation.ranks) {
    waited = std::max(waited, rank.launch_wait_seconds);
    kernels = std::max(kernels, rank.launches);
  }
  std::size_t segments = 0;
  for (const std::vector<Segment>& rank : plan.recorded) segments = std::max(segments, rank.size());
  return "launches   " +
         (segments > 0 ? counted(segments, "recorded segment") : std::string("nothing recorded")) +
         ", " + counted(kernels, "kernel") + " launched one by one; the device waits " +
         format_seconds(waited) + " for them\n";
}

std::string communicators_line(const Plan& plan) {
  const std::int64_t bytes = plan.costs.communicator_bytes;
  if (bytes == 0) return "";
  return "NCCL       about " + format_bytes(bytes) +
         " on every rank, estimated from published reports\n";
}

std::string speed_line(const Plan& plan) {
  const StepAmount amount = step_amount(plan);
  if (plan.decisions().micro_batch <= 0 || plan.simulation.step_seconds <= 0) return "";
  const int devices = devices_of(plan);
  const double rate = amount.count / plan.simulation.step_seconds;
  const std::string unit = std::string(" ") + amount.unit + "/s";
  std::string text = "speed      " + format_count(rate) + unit;
  const double utilisation = flops_utilisation(plan);
  if (utilisation <= 0) return text + "\n";
  if (devices > 1) text += ", " + format_count(rate / devices) + unit + " a GPU";
  return text + ", " + format_double(100 * utilisation, 1) + " % of the GPUs' peak (MFU)\n";
}

}  // namespace

std::string devices_sentence(const Plan& plan) {
  const SharedDevices& devices = plan.costs.devices;
  if (devices.empty()) return "";
  const int ranks = plan.decisions().mesh.size();
  std::string text = counted(ranks, "rank") + " share " + counted(devices.ranks_on.size(), "GPU") +
                     ", up to " + std::to_string(most_ranks_on_one(devices)) +
                     " on one: their work is done one after another, and the GPUs idle " +
                     format_double(100 * idle_share(devices, plan.simulation), 1) + " % of a step";
  if (devices.device_bytes > 0)
    text += "; they need " + format_bytes(shared_peak_bytes(devices, plan.ledger)) + " of the " +
            format_bytes(devices.device_bytes) + " of one";
  return text;
}

std::string plan_text(const Plan& plan, int columns) {
  const Simulation& simulation = plan.simulation;
  std::string text = headline(plan) + "\n" + stage_table(plan) + "\n" + cut_grid(plan, columns) +
                     "\n" + byte_table(plan.ledger, plan.memory.device.count) + "\n";
  const std::string host = host_table(plan.ledger, plan.memory.host.count);
  if (!host.empty()) text += host + "\n";
  const std::string disk = disk_table(plan.ledger, plan.memory.disk.bytes.count);
  if (!disk.empty()) text += disk + "\n";
  text += mesh_text(plan) + tiers_text(plan) + recompute_line(plan) + offloaded_line(plan) +
          python_line(plan) + idle_lines(plan);
  text += rows_line(plan);
  if (const std::string devices = devices_sentence(plan); !devices.empty())
    text += "devices    " + devices + "\n";
  text += launch_line(plan) + communicators_line(plan);
  text += "memory     " + format_bytes(peak_bytes(plan.ledger)) + " on the fullest rank";
  if (plan.memory.device.count > 0) text += ", budget " + format_bytes(plan.memory.device.count);
  text += "\npredicted  " + format_seconds(simulation.step_seconds) + " a step, bubble " +
          format_double(100 * simulation.bubble, 1) + " %\n" + speed_line(plan);
  return text;
}

}  // namespace strata
