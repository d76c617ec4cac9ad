// Bounds are ratios of the simulator's own seconds: with more tokens, a step computes longer but
// moves and updates the same amount.
#include "strata/plan/simulate/tier_traffic.h"

#include <algorithm>
#include <cmath>

#include "strata/base/units.h"

namespace strata {
namespace {

double seconds_of(std::int64_t bytes, double rate, double latency) {
  return latency + (rate > 0 ? static_cast<double>(bytes) / rate : 0);
}

std::string rate_text(double bytes_per_second) {
  return format_double(bytes_per_second / 1e9, bytes_per_second < 1e9 ? 3 : 1) + " GB/s";
}

// Bytes that a fetch reads from disk; what the host holds is not read.
std::int64_t fetch_reads(const LayerOnDisk& disk) {
  return disk.fetches_weights && !disk.weights_on_host ? disk.weights : 0;
}

// Bytes that an update reads from disk and writes back.
std::int64_t update_moves(const LayerOnDisk& disk) {
  return disk.states + (disk.weights_on_host ? 0 : disk.weights);
}

// If all replicas keep whole weights, each updates a part, which is sent to the others without a
// fetch.
bool comes_back(const LayerShards& shards, const LayerTiers& tiers) {
  return tiers.updates_on_host() && shards.gathers_weights();
}

}  // namespace

TierRates tier_rates(const MemoryOptions& memory, const MachineProfile& machine, int update_threads,
                     bool measured) {
  const Bytes link = memory.link_bandwidth;
  bool assumed = false;
  std::string text;
  const auto add = [&](const std::string& what, double rate, const char* from) {
    text += (text.empty() ? "" : ", ") + what + " " + rate_text(rate) + from;
  };
  // The recipe's rate, else the machine's, else the assumed one.
  const auto rate_of = [&](const std::string& what, Bytes requested, Bytes known,
                           double otherwise) {
    const Bytes stated = requested.count > 0 ? requested : known;
    assumed |= stated.count == 0;
    const double rate = stated.count > 0 ? static_cast<double>(stated.count) : otherwise;
    add(what, rate, requested.count > 0 ? " (as requested)" : stated.count > 0 ? "" : " (assumed)");
    return rate;
  };
  TierRates rates;
  rates.to_device = rate_of("link in", link, machine.link.to_device, kAssumedCopyRate);
  rates.to_host = rate_of("out", link, machine.link.to_host, kAssumedCopyRate);
  rates.latency = link.count > 0 ? 0 : machine.link.latency;
  if (measured) {
    text += ", updates as layers were measured";
  } else {
    Bytes known = machine.host.update;
    const std::int64_t some = machine.host.update_one_core.count * update_threads;
    if (some > 0 && (known.count == 0 || some < known.count)) known.count = some;
    rates.update = rate_of("updates", {}, known, kAssumedUpdateRate);
  }
  if (!memory.disk.path.empty()) {
    rates.disk_read = rate_of("disk read", {}, machine.disk.read, kAssumedDiskRate);
    rates.disk_write = rate_of("written", {}, machine.disk.write, kAssumedDiskRate);
  }
  rates.text = text + (assumed ? "; `strata doctor` measures what is assumed" : "");
  return rates;
}

std::int64_t update_bytes(const HostBytes& host) {
  return host.gradients + 2 * (host.states + host.weights);
}

TierSeconds tier_seconds(const CostTable& costs, const ShardLayout& shards, const TierLayout& tiers,
                         const TierRates& rates) {
  TierSeconds seconds;
  if (tiers.layers.empty()) return seconds;
  const auto layers = shard_bytes(costs, shards, /*reads_in_place=*/true, tiers);
  for (int l = 0; l < static_cast<int>(layers.size()); ++l) {
    const LayerCost& cost = costs.layers[l];
    LayerTierSeconds activations;
    if (tiers[l].offloads_activations()) {
      activations.activations_fetch_seconds =
          seconds_of(cost.input_bytes, rates.to_device, rates.latency);
      activations.activations_offload_seconds =
          seconds_of(cost.input_bytes, rates.to_host, rates.latency);
    }
    if (!tiers[l].updates_on_host()) {
      seconds.push_back(activations);
      continue;
    }
    const HostBytes& updated = layers[l].updated;
    const double share = cost.weight_bytes > 0 ? static_cast<double>(updated.weights) /
                                                     static_cast<double>(cost.weight_bytes)
                                               : 1;
    const double update = rates.update > 0
                              ? static_cast<double>(update_bytes(updated)) / rates.update
                              : cost.update_seconds * share;
    const LayerOnDisk& disk = layers[l].disk;
    seconds.push_back(
        {.updates_on_host = true,
         .fetch_seconds = seconds_of(updated.weights, rates.to_device, rates.latency),
         .offload_seconds = seconds_of(updated.gradients, rates.to_host, rates.latency),
         .update_seconds = update,
         .fetch_read_seconds = seconds_of(fetch_reads(disk), rates.disk_read, 0),
         .update_read_seconds = seconds_of(update_moves(disk) + disk.gradients, rates.disk_read, 0),
         .update_write_seconds = seconds_of(update_moves(disk), rates.disk_write, 0),
         .gradient_write_seconds = seconds_of(disk.gradients, rates.disk_write, 0),
         .weights_on_disk = fetch_reads(disk) > 0,
         .comes_back = comes_back(shards[l], tiers[l]),
         .gradient_buffers = tiers.gradient_buffers,
         .activations_fetch_seconds = activations.activations_fetch_seconds,
         .activations_offload_seconds = activations.activations_offload_seconds});
  }
  return seconds;
}

TierTraffic tier_traffic(const Program& program, const CostTable& costs,
                         const std::vector<ShardBytes>& layers, const ShardLayout& shards,
                         const TierLayout& tiers) {
  TierTraffic traffic;
  for (const Action& action : program) {
    for (int l = action.layers.begin; l < action.layers.end; ++l) {
      const bool leave = action.op == Op::kOffloadActivations;
      if (leave || action.op == Op::kFetchActivations) {
        const auto full = static_cast<double>(costs.layers[l].input_bytes);
        (leave ? traffic.to_host : traffic.to_device) +=
            std::llround(full * costs.scale(action.micro_batch));
      }
      if (!tiers[l].updates_on_host()) continue;
      const HostBytes& updated = layers[l].updated;
      const LayerOnDisk& disk = layers[l].disk;
      const bool back = comes_back(shards[l], tiers[l]);
      const bool update = action.op == Op::kUpdate;
      const bool fetch = action.op == Op::kPrefetchWeights && !back;
      const bool reduced = shards[l].reduced && action.op == Op::kAwaitGradients;
      if (fetch) ++traffic.fetches;
      if (fetch || (back && update)) traffic.to_device += updated.weights;
      const bool lands = reduced || action.op == Op::kOffloadGradients;
      if (lands) traffic.to_host += updated.gradients;
      if (lands) traffic.disk_written += disk.gradients;
      // A later micro-batch is added to what the disk has.
      if (reduced && action.micro_batch > 0) traffic.disk_read += disk.gradients;
      if (fetch) traffic.disk_read += fetch_reads(disk);
      if (update) traffic.disk_read += update_moves(disk) + disk.gradients;
      if (update) traffic.disk_written += disk.weights + disk.states;
    }
  }
  return traffic;
}

TierBounds tier_bounds(const Simulation& simulation, const Schedule& schedule, bool updates_at_once,
                       double amount, const std::string& unit) {
  TierBounds bounds{.unit = unit, .amount = amount};
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    const RankTimeline& rank = simulation.ranks[r];
    double forward = 0, backward = 0, tracks[kNumTrackKinds] = {};
    for (const TrackEvent& event : rank.tracks)
      tracks[static_cast<int>(event.track)] += event.end_seconds - event.begin_seconds;
    for (std::size_t i = 0; i < rank.events.size(); ++i) {
      const Op op = schedule.programs[r][i].op;
      const double seconds = rank.events[i].end_seconds - rank.events[i].begin_seconds;
      if (op == Op::kForward) forward += seconds;
      if (is_compute(op) && op != Op::kForward) backward += seconds;
    }
    if (forward + backward <= 0) continue;
    const double link = std::max(tracks[static_cast<int>(TrackKind::kToDevice)],
                                 tracks[static_cast<int>(TrackKind::kToHost)]);
    const double hides = updates_at_once ? backward : forward;
    bounds.link = std::max(bounds.link, amount * link / (forward + backward));
    const double read = tracks[static_cast<int>(TrackKind::kDiskRead)];
    bounds.disk = std::max(bounds.disk, amount * read / (forward + backward));
    if (hides <= 0) continue;
    const auto hidden = [&](TrackKind track) {
      return amount * tracks[static_cast<int>(track)] / hides;
    };
    bounds.update = std::max(bounds.update, hidden(TrackKind::kUpdate));
    bounds.disk = std::max(bounds.disk, hidden(TrackKind::kDiskWrite));
  }
  return bounds;
}

std::string binding_sentence(const TierBounds& bounds) {
  const struct {
    const char* name;
    double below;
  } resources[] = {
      {"the link", bounds.link}, {"the optimizer", bounds.update}, {"the disk", bounds.disk}};
  const auto& most =
      *std::ranges::max_element(resources, {}, [](const auto& resource) { return resource.below; });
  std::string text = "link-bound below " + format_count(bounds.link) + " " + bounds.unit +
                     " a step; optimizer-bound below " + format_count(bounds.update);
  if (bounds.disk > 0) text += "; disk-bound below " + format_count(bounds.disk);
  return text + "; this one has " + format_count(bounds.amount) + ": " +
         (most.below > bounds.amount ? most.name : "compute") + " binds";
}

}  // namespace strata
