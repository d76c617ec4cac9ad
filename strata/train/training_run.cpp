#include "strata/train/training_run.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/pipeline/probe_cache.h"
#include "strata/train/rank_loop.h"
#include "strata/train/rows_start.h"
#include "strata/train/same_features.h"

namespace strata {
void require_findings(const Recipe& recipe, const RunData& data, const TrainingRequest& request) {
  if (!request.importance && request.hot_ids == 0) return;
  const std::string asked = request.importance ? "--importance" : "--hot-ids";
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& got, const std::string& fix) {
    throw UserError({"train.findings", asked, what, expected, got, fix});
  };
  if (!recipe.recommender)
    refuse("a model of text has neither features nor tables of ids", "a recommender",
           std::string("model.kind ") + name_of(recipe.model.kind), "leave out " + asked);
  if (request.importance && !data.evaluates())
    refuse("there are no samples to permute the features of",
           "data.validation, or a data.validation_fraction above 0", "neither",
           "pass --set data.validation=FILE");
}

TrainingResult train(World& world, const Recipe& recipe, const PlannedRun& run,
                     const TrainingRequest& request) {
  const Device device = recipe.rank_device();
  const std::unique_ptr<const RunData> opened =
      request.data != nullptr ? nullptr : open_data(recipe, request.resume);
  RunState state{recipe,
                 run,
                 request,
                 request.data != nullptr ? request.data : opened.get(),
                 device.kind != DeviceKind::kCpu && world.local_ranks() > cuda_backend().count(),
                 world.processes()};
  require_findings(recipe, *state.data, request);
  if (const auto* logs = dynamic_cast<const LogData*>(state.data)) {
    RowsStart start{.processes = world.processes(),
                    .version = position_of(recipe, request.resume).steps_done,
                    .resume = request.resume,
                    .notice = request.on_notice,
                    .stop = request.stop};
    take_decision(start, world.agree([&] { return decide_rows_start(recipe, start); }));
    state.recommender =
        std::make_unique<RecommenderRun>(recipe, run.plan.steps, *logs, std::move(start));
  }
  world.run([&](Group& group, MemoryAccount& account) { run_rank(state, group, account); });
  TrainingResult& result = state.result;
  std::vector<double> seconds, bubbles;
  for (const StepRecord& record : result.records) {
    if (result.records.size() > 1 && &record == &result.records.front()) continue;
    seconds.push_back(record.step_seconds);
    bubbles.push_back(record.bubble);
  }
  result.median_step_seconds = median(std::move(seconds));
  result.median_bubble = median(std::move(bubbles));
  // Spans of a rank that gives its work to a device are those of giving.
  if (recipe.device_kind() != DeviceKind::kCpu) result.layers.clear();
  // With tensor parallelism a layer's spans hold its messages, which the probe's don't; replicas
  // share the update, which the probe does whole.
  if (run.model.split().ranks == 1) {
    std::vector<LayerSeconds> trained = result.layers;
    if (run.mesh.dp > 1)
      for (LayerSeconds& layer : trained) layer[LayerPart::kUpdate] = {};
    correct_cache(run.probe_cache, run.probe_keys, trained);
  }
  return std::move(result);
}

}  // namespace strata
