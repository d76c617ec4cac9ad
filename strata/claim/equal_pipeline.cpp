#include "strata/claim/equal_pipeline.h"

#include <algorithm>
#include <string>

#include "strata/plan/simulate/simulator.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

double longest_span(const Simulation& simulation) {
  double longest = 0;
  for (const RankTimeline& rank : simulation.ranks) {
    double first = simulation.step_seconds, last = 0;
    for (const TraceEvent& event : rank.events) {
      if (!is_compute(event.op)) continue;
      first = std::min(first, event.begin_seconds);
      last = std::max(last, event.end_seconds);
    }
    longest = std::max(longest, last - first);
  }
  return longest;
}

// Of the micro-batch whose backward a rank runs first.
void erase_first_recomputes(Schedule& schedule) {
  for (Program& program : schedule.programs) {
    const auto first =
        std::ranges::find_if(program, [](const Action& a) { return makes_input_gradients(a.op); });
    if (first == program.end()) continue;
    const int micro_batch = first->micro_batch;
    std::erase_if(program, [&](const Action& action) {
      return action.op == Op::kRecompute && action.micro_batch == micro_batch;
    });
  }
}

}  // namespace

double pipeline_seconds(const EqualPipeline& pipeline) {
  const int stages = pipeline.ranks * pipeline.virtual_stages;
  const double parts = pipeline.virtual_stages;
  Dataflow dataflow{.num_layers = stages};
  CostTable costs;
  Partition partition{.bounds = {0}};
  LayerSet recompute;
  for (int l = 0; l < stages; ++l) {
    if (l + 1 < stages) {
      dataflow.values.push_back(
          {.name = "x" + std::to_string(l), .producer = l, .consumers = {l + 1}});
      costs.values.push_back({.transfer_seconds = pipeline.transfer});
    }
    costs.layers.push_back({.forward_seconds = pipeline.forward / parts,
                            .backward_seconds = (pipeline.input + pipeline.weight) / parts,
                            .weight_seconds = pipeline.weight / parts});
    partition.bounds.push_back(l + 1);
    if (pipeline.recomputes) recompute.add(l);
  }
  const Schedule order =
      build_schedule(pipeline.schedule, {.ranks = pipeline.ranks,
                                         .micro_batches = pipeline.micro_batches,
                                         .virtual_stages = pipeline.virtual_stages});
  Schedule lowered = lower(order, dataflow, partition, {.recompute = recompute, .update = false});
  if (pipeline.keeps_one) erase_first_recomputes(lowered);
  return longest_span(simulate(lowered, dataflow, partition, costs));
}

double equal_speed(EqualPipeline pipeline) {
  const double part = 1.0 / (pipeline.ranks * pipeline.micro_batches);
  pipeline.forward = pipeline.input = pipeline.weight = part;
  return 1 / pipeline_seconds(pipeline);
}

double bubble_rate(const EqualPipeline& pipeline) {
  const double seconds = pipeline_seconds(pipeline);
  const double work =
      pipeline.micro_batches * (pipeline.forward + pipeline.input + pipeline.weight);
  return (seconds - work) / seconds;
}

}  // namespace strata
