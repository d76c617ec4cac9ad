#include "strata/serve/serving_plan.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/measure/byte_costs.h"
#include "strata/plan/search/tier_choice.h"
#include "strata/plan/text/plan_text.h"
#include "strata/serve/decoder.h"
#include "strata/serve/weight_tiers.h"

namespace strata {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr int kWindow = 2;  // one layer is copied while another one computes

// Keys and values of the longest sequence in one piece, the mask of its new tokens, and the copies
// of queries and outputs; 0: the layer keeps no keys.
std::int64_t attention_bytes(const ServingRequest& request, const Layer& layer,
                             std::int64_t input_bytes) {
  std::int64_t kept = 0;
  for (const TensorSpec& spec : layer.cache(1, request.context)) kept += spec.numel() * kFloatBytes;
  if (kept == 0) return 0;
  return kept + request.pass_tokens * request.context * kFloatBytes + 3 * input_bytes;
}

// Costs of the largest pass as one micro-batch, cut into equal samples that the model can have.
CostTable pass_costs(const ServingRequest& request) {
  const Sequential& model = request.model;
  const std::int64_t samples = (request.pass_tokens + request.context - 1) / request.context;
  const std::int64_t length = (request.pass_tokens + samples - 1) / samples;
  CostTable costs =
      byte_costs(model, {.batch_inputs = {{.shape = {samples, length}, .dtype = at::kLong}},
                         .samples = samples,
                         .micro_batch = samples,
                         .optimizer_slots = 0,
                         .precision = weight_type(model)});
  for (int l = 0; l < model.num_layers(); ++l) {
    LayerCost& cost = costs.layers[l];
    cost.gradient_bytes = cost.state_bytes = 0;
    cost.update_seconds = 0;
    cost.no_grad_transient_bytes += attention_bytes(request, model.layer(l), cost.input_bytes);
  }
  // The rows that need logits, their states, and their logits, which tensor-parallel ranks gather.
  const std::vector<int>& outputs = model.outputs(model.num_layers() - 1);
  for (const int output : outputs)
    costs.values[output].bytes = costs.values[output].bytes / samples * request.pass_logits;
  const int copies = request.mesh[Axis::kTensor] > 1 ? 3 : 1;
  costs.layers.back().no_grad_transient_bytes =
      costs.layers.back().input_bytes + (copies - 1) * costs.values[outputs[0]].bytes;
  costs.page_bytes = request.room.pages * page_bytes(model, decoder_steps(model, request.mesh),
                                                     request.room.page_tokens);
  costs.draft_bytes = request.draft_bytes;
  return costs;
}

// `count` of the layers, evenly spread.
void spread(std::vector<int>& chosen, const std::vector<int>& layers, int count) {
  const int all = static_cast<int>(layers.size());
  for (int i = 0; i < all; ++i)
    if ((i + 1) * count / all > i * count / all) chosen.push_back(layers[i]);
}

// Chooses layers of each stage: first of those that keep keys, which are equal, then the others.
class Candidates {
 public:
  Candidates(const Sequential& model, const StepPlan& steps) {
    const Partition& partition = steps.decisions().partition;
    for (int stage = 0; stage < partition.num_stages(); ++stage) {
      Stage& layers = stages_.emplace_back();
      for (int l = partition.bounds[stage]; l < partition.bounds[stage + 1]; ++l) {
        if (model.layout(l).own_numel == 0) continue;
        (model.layer(l).cache(1, 1).empty() ? layers.others : layers.blocks).push_back(l);
      }
      most_ = std::max(most_, static_cast<int>(layers.blocks.size() + layers.others.size()));
    }
  }

  int most() const { return most_; }  ///< layers of a stage

  std::vector<int> choose(int count) const {
    std::vector<int> chosen;
    for (const Stage& stage : stages_) {
      const int blocks = std::min(count, static_cast<int>(stage.blocks.size()));
      spread(chosen, stage.blocks, blocks);
      const int others = std::min(count - blocks, static_cast<int>(stage.others.size()));
      chosen.insert(chosen.end(), stage.others.begin(), stage.others.begin() + others);
    }
    std::ranges::sort(chosen);
    return chosen;
  }

 private:
  struct Stage {
    std::vector<int> blocks, others;
  };
  std::vector<Stage> stages_;
  int most_ = 0;
};

TierLayout layout_of(const ServingRequest& request, const std::vector<int>& away, int on_disk) {
  TierLayout layout{.window = request.memory.window > 0 ? static_cast<int>(request.memory.window)
                                                        : kWindow};
  if (away.empty()) return layout;
  layout.layers.resize(static_cast<std::size_t>(request.model.num_layers()));
  for (std::size_t i = 0; i < away.size(); ++i) {
    const bool disk = static_cast<int>(i) >= std::ssize(away) - on_disk;
    const Tier tier = disk ? Tier::kDisk : Tier::kHost;
    layout.layers[away[i]] = {.weights = tier, .gradients = Tier::kHost, .states = tier};
  }
  return layout;
}

Simulation simulated(const ServingPlan& plan, const ServingRequest& request,
                     const CostTable& costs) {
  const StepDecisions& decisions = plan.steps.decisions();
  return simulate(plan.steps.proposed_evaluation(1), plan.steps.dataflow(), decisions.partition,
                  costs, {},
                  tier_seconds(costs, plan.steps.shards(), decisions.tiers, request.rates));
}

// Pages off the device, also those of a draft model.
void add_lower_pages(RankLedger& rank, const ServingRequest& request, const CostTable& costs) {
  for (const std::int64_t bytes :
       {costs.page_bytes / request.room.pages, request.draft_page_bytes}) {
    if (bytes == 0) continue;
    rank.host.pages += host_bytes_of_pages(request.room, bytes);
    rank.on_disk.pages += request.room.disk_pages * bytes;
    rank.disk_bytes += disk_bytes_of_pages(request.room, bytes);
  }
}

ServingPlan planned(const ServingRequest& request, const CostTable& costs,
                    const std::vector<int>& away, int on_disk) {
  ServingPlan plan{
      .steps = decoder_steps(request.model, request.mesh, layout_of(request, away, on_disk)),
      .costs = costs};
  const StepDecisions& decisions = plan.steps.decisions();
  const Dataflow& dataflow = plan.steps.dataflow();
  const Schedule& schedule = plan.steps.proposed_evaluation(1);
  const ShardLayout& shards = plan.steps.shards();
  plan.ledger =
      make_ledger(schedule, dataflow, decisions.partition, costs, simulated(plan, request, costs),
                  shards, /*reads_in_place=*/true, decisions.tiers);
  for (RankLedger& rank : plan.ledger) add_lower_pages(rank, request, costs);
  const auto layers = shard_bytes(costs, shards, /*reads_in_place=*/true, decisions.tiers);
  for (const Program& program : schedule.programs)
    plan.traffic.push_back(tier_traffic(program, costs, layers, shards, decisions.tiers));
  for (const LayerTiers& tiers : decisions.tiers.layers) {
    plan.layers_away += tiers.fetches_weights() ? 1 : 0;
    plan.layers_on_disk += tiers.weights == Tier::kDisk ? 1 : 0;
  }
  return plan;
}

bool within(std::int64_t bytes, Bytes budget) { return budget.count == 0 || bytes <= budget.count; }

[[noreturn]] void refuse(const ServingRequest& request, const ServingPlan& least) {
  const MemoryOptions& memory = request.memory;
  const bool device = !within(peak_bytes(least.ledger), memory.device);
  const bool host = !device && !within(host_bytes(least.ledger), memory.host);
  const std::string field = device ? "memory.device" : host ? "memory.host" : "memory.disk.bytes";
  const std::int64_t bytes = device ? peak_bytes(least.ledger)
                             : host ? host_bytes(least.ledger)
                                    : disk_bytes(least.ledger);
  const std::string& smaller = device ? request.smaller.device
                               : host ? request.smaller.host
                                      : request.smaller.disk;
  const std::int64_t budget = device ? memory.device.count
                              : host ? memory.host.count
                                     : memory.disk.bytes.count;
  throw UserError(
      {.operation = "plan.memory",
       .where = field,
       .what =
           std::string(!device && !smaller.empty() ? "the model and its keys and values do not fit"
                                                   : "the model does not fit") +
           ", with " +
           (least.layers_away == 0 ? "all weights on the device"
                                   : "as many weights off the device as may leave it") +
           "\n" + (device ? byte_table(least.ledger, budget) : host_table(least.ledger, budget)),
       .expected = "at least " + format_bytes(bytes) + " for each rank",
       .got = format_bytes(budget),
       .fix = (smaller.empty() ? "" : smaller + ", or ") + "set " + field + "=" +
              format_bytes_exactly(bytes) +
              (device && memory.weights == TierChoice::kDevice ? " or memory.weights=auto" : "")});
}

}  // namespace

ServingPlan plan_serving(const ServingRequest& request) {
  const MemoryOptions& memory = request.memory;
  const CostTable costs = pass_costs(request);
  const Candidates candidates(request.model, decoder_steps(request.model, request.mesh));
  const bool open = memory.weights == TierChoice::kAuto;
  int of_stage = memory.weights == TierChoice::kDevice ? 0 : candidates.most();
  if (open)
    of_stage -= largest_window(candidates.most(), [&](int kept) {
      const std::vector<int> away = candidates.choose(candidates.most() - kept);
      return within(peak_bytes(planned(request, costs, away, 0).ledger), memory.device);
    });
  const std::vector<int> away = candidates.choose(of_stage);
  const int all = static_cast<int>(away.size());
  const bool may_use_disk = open && !memory.disk.path.empty();
  int on_disk = memory.weights == TierChoice::kDisk || may_use_disk ? all : 0;
  if (may_use_disk)
    on_disk -= largest_window(all, [&](int on_host) {
      const ServingPlan plan = planned(request, costs, away, all - on_host);
      return within(host_bytes(plan.ledger), memory.host);
    });
  ServingPlan plan = planned(request, costs, away, on_disk);
  if (!within(peak_bytes(plan.ledger), memory.device) ||
      !within(host_bytes(plan.ledger), memory.host) ||
      !within(disk_bytes(plan.ledger), memory.disk.bytes))
    refuse(request, plan);
  plan.steps.evaluation(1);  // checks its programs
  return plan;
}

double pass_seconds(const ServingPlan& plan, const ServingRequest& request,
                    const PassSeconds& layers) {
  CostTable costs = plan.costs;
  for (int l = 0; l < request.model.num_layers(); ++l)
    costs.layers[l].forward_seconds = request.model.layer(l).cache(1, 1).empty() ? 0 : layers.block;
  costs.layers.back().forward_seconds = layers.ends;
  return simulated(plan, request, costs).step_seconds;
}

std::string tiers_sentence(const ServingPlan& plan) {
  if (plan.layers_away == 0) return "";
  std::int64_t bytes = 0;
  for (const TierTraffic& rank : plan.traffic) bytes = std::max(bytes, rank.to_device);
  const int on_host = plan.layers_away - plan.layers_on_disk;
  std::string where = on_host > 0 ? std::to_string(on_host) + " on the host" : "";
  if (plan.layers_on_disk > 0)
    where += (on_host > 0 ? " and " : "") + std::to_string(plan.layers_on_disk) + " on the disk";
  return "weights of " + std::to_string(plan.layers_away) + " of " +
         std::to_string(plan.costs.layers.size()) + " layers off the device (" + where + "), " +
         format_bytes(bytes) + " copied to a rank in every pass";
}

}  // namespace strata
