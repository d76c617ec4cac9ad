#include "strata/run/training_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "strata/base/units.h"
#include "strata/measure/step_miss.h"
#include "strata/plan/text/plan_text.h"
#include "strata/report/report.h"

namespace strata {
namespace {

// The kept step whose duration is closest to the median: the report draws it.
std::size_t typical_step(const TrainingResult& result) {
  std::size_t best = 0;
  const auto distance = [&](std::size_t i) {
    const MeasuredStep& step = result.last_steps[i];
    return std::abs(step.end_seconds - step.begin_seconds - result.median_step_seconds);
  };
  for (std::size_t i = 1; i < result.last_steps.size(); ++i)
    if (distance(i) < distance(best)) best = i;
  return best;
}

// A pipeline rank has one plan for all of its replicas and slices.
int planned_rank(const PlannedRun& run, int rank) {
  return run.mesh.axes.place(rank)[Axis::kPipeline];
}

std::string mesh_text(const PlannedRun& run) {
  const MeshOptions& mesh = run.mesh;
  const auto counted = [](std::int64_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string text = counted(run.ranks, "rank") + " x " + counted(run.threads_per_rank, "thread");
  if (mesh.axes.stage_size() > 1) text += ": " + mesh.axes.text(" x ");
  return text + (mesh.zero.stage > 0 ? ", ZeRO " + std::to_string(mesh.zero.stage) : "");
}

// Where the layers' state lives.
std::string memory_text(const PlannedRun& run) {
  const TierPlacement& placement = run.plan.placement;
  if (!placement.leaves_device()) return "all on the device";
  const int window = run.plan.decisions().tiers.window;
  return placement_text(placement) +
         (placement.tiers.fetches_weights() ? ", window " + std::to_string(window) : "");
}

void add_timelines(ReportInput& input, const PlannedRun& run, const TrainingResult& result) {
  const Simulation& simulation = predicted_step(run, result);
  for (int rank = 0; rank < run.ranks; ++rank) {
    const RankTimeline& planned = simulation.ranks[planned_rank(run, rank)];
    input.predicted.ranks.push_back(row_of(planned));
    input.predicted.tracks.push_back(tracks_within(planned, simulation.step_seconds));
  }
  input.predicted.step_seconds = simulation.step_seconds;
  if (result.last_steps.empty()) return;
  const std::size_t index = typical_step(result);
  const MeasuredStep& step = result.last_steps[index];
  input.measured = {.ranks = step.ranks,
                    .begin_seconds = step.begin_seconds,
                    .step_seconds = step.end_seconds - step.begin_seconds};
  for (int rank = 0; rank < static_cast<int>(step.tracks.size()); ++rank)
    input.measured.tracks.push_back(tracks_during(result.last_steps, index, rank));
  input.measured_step =
      result.records.back().step - static_cast<std::int64_t>(result.last_steps.size() - 1 - index);
}

void add_memory(ReportInput& input, const Recipe& recipe, const PlannedRun& run,
                const TrainingResult& result) {
  input.budget_bytes = recipe.memory.device.count;
  for (int rank = 0; rank < run.ranks; ++rank) {
    const RankLedger& ledger = run.plan.ledger[planned_rank(run, rank)];
    ReportMemory memory{.predicted_peak = ledger.at_peak.charged()};
    for (int kind = 0; kind < kNumByteKinds; ++kind)
      if (is_charged(static_cast<ByteKind>(kind)))
        memory.kinds.emplace_back(name_of(static_cast<ByteKind>(kind)), ledger.at_peak.bytes[kind]);
    if (!result.records.empty()) memory.measured_peak = result.records.back().peak_bytes[rank];
    input.memory.push_back(std::move(memory));
    if (run.plan.decisions().tiers.layers.empty()) continue;
    const HostBytes& host = ledger.host;
    ReportMemory on_host{.kinds = {{"weights", host.weights},
                                   {"gradients", host.gradients},
                                   {"states", host.states},
                                   {"activations", host.activations},
                                   {"staging", host.staging}},
                         .predicted_peak = host.total()};
    if (!result.records.empty() && result.records.back().offload)
      on_host.measured_peak = result.records.back().offload->host_peak_bytes[rank];
    input.host_memory.push_back(std::move(on_host));
  }
}

// The mean if replicas send nothing in some steps, otherwise the median. The plan's bytes are those
// of an average step: of a round with outer steps, of the last intervals with 0/1 Adam.
std::int64_t average(std::vector<std::int64_t> counted, const MeshRequest& mesh) {
  if (mesh.outer_every > 0 || mesh.signs_per_step < 1)
    return std::accumulate(counted.begin(), counted.end(), std::int64_t{0}) / std::ssize(counted);
  std::ranges::nth_element(counted, counted.begin() + std::ssize(counted) / 2);
  return counted[counted.size() / 2];
}

// What each axis sends in a step, over all ranks.
void add_communication(ReportInput& input, const PlannedRun& run, const TrainingResult& result) {
  if (run.ranks == 1 || result.records.empty()) return;
  const Communication& planned = run.plan.communication;
  ReportTable table{
      .title = "Communication",
      .note =
          "What all ranks send each other in a step: as planned, and as counted (median of the "
          "steps; their mean if replicas send nothing in some). Exposed: what the step would save "
          "without it, as planned. Sums of at most 8,192 "
          "numbers go whole to every rank, which the plan does not consider.",
      .columns = {"axis", "ranks", "planned", "counted", "exposed"},
      .rows = {}};
  for (const AxisInfo& axis : kAxes) {
    const int places = run.mesh.axes.traffic_ranks(axis.id);
    if (places == 1) continue;
    double bytes = 0;  // of one replica and slice
    for (const RankTraffic& rank : planned.ranks) bytes += rank[axis.id].bytes;
    std::vector<std::int64_t> counted;
    for (const StepRecord& record : result.records)
      if (record.sent) counted.push_back(record.sent->axes[axis.id]);
    if (counted.empty()) return;
    table.rows.push_back({std::string(axis.name) + ": " + axis.traffic, std::to_string(places),
                          format_bytes(std::llround(bytes * run.mesh.axes.stage_size())),
                          format_bytes(average(std::move(counted), run.plan.mesh)),
                          format_seconds(planned.exposed_seconds[axis.id])});
  }
  input.tables.push_back(std::move(table));
}

std::string title_of(const Recipe& recipe, const PlannedRun& run, const TrainingResult& result) {
  const std::string title = recipe.task->title() + ", " +
                            format_count(static_cast<double>(run.model.num_weights())) + " weights";
  if (result.embeddings.empty()) return title;
  const EmbeddingSize size = sum_of(result.embeddings);
  return title + ", " + format_count(static_cast<double>(size.rows + size.cold_rows)) +
         " embeddings";
}

ReportInput report_input(const Recipe& recipe, const PlannedRun& run, const TrainingResult& result,
                         const TextSample& sample,
                         const std::vector<std::pair<std::string, std::string>>& origin) {
  const TrainOptions& train = recipe.train;
  const std::int64_t tokens = recipe.task->sample_tokens();
  ReportInput input{
      .title = title_of(recipe, run, result),
      .unit = result.unit,
      .facts = {{"mesh", mesh_text(run)},
                {"schedule", name_of(run.mesh.schedule)},
                {"recompute", name_of(recipe.memory.recompute)},
                {"memory", memory_text(run)},
                {"mini-batch", std::to_string(train.mini_batch) + " samples" +
                                   (tokens > 0 ? " of " + std::to_string(tokens) + " tokens" : "")},
                {"micro-batch", std::to_string(train.micro_batch) + " samples"},
                {"data", recipe.task->data_source()}},
      .records = result.records,
      .step_seconds = {run.plan.simulation.step_seconds, result.median_step_seconds},
      .step_miss = text_of(step_miss(run.plan, result.layers, result.median_step_seconds)),
      .bubble = {run.plan.simulation.bubble, result.median_bubble},
      .prompt = sample.prompt,
      .sample = sample.text,
      .appendices = {{"Plan", plan_text(run.plan)}, {"Recipe", recipe.text}}};
  input.facts.insert(input.facts.end(), origin.begin(), origin.end());
  std::erase_if(input.facts, [](const auto& fact) { return fact.second.empty(); });
  input.embeddings = result.embeddings;
  recipe.task->add_to_report(input);
  if (!result.stopped && result.validation_loss > 0) input.validation_loss = result.validation_loss;
  input.validation_metrics = result.validation_metrics;
  input.tables = result.inspection.tables;
  std::ranges::copy(result.inspection.report_tables, std::back_inserter(input.tables));
  add_communication(input, run, result);
  add_timelines(input, run, result);
  add_memory(input, recipe, run, result);
  return input;
}

}  // namespace

std::string run_report(const Recipe& recipe, const PlannedRun& run, const TrainingResult& result,
                       const TextSample& sample,
                       const std::vector<std::pair<std::string, std::string>>& origin) {
  return to_html(report_input(recipe, run, result, sample, origin));
}

void write_run_report(const std::string& path, const Recipe& recipe, const PlannedRun& run,
                      const TrainingResult& result, const TextSample& sample,
                      const std::vector<std::pair<std::string, std::string>>& origin) {
  write_report(path, report_input(recipe, run, result, sample, origin));
}

}  // namespace strata
