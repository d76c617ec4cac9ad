#include "strata/run/training_run.h"

#include <utility>

#include "strata/base/measurement.h"
#include "strata/measure/probe_cache.h"
#include "strata/run/rank_loop.h"
#include "strata/run/rank_options.h"
#include "strata/run/resume_point.h"

namespace strata {

std::unique_ptr<TaskData> open_data(const Recipe& recipe, const std::string& resume) {
  return recipe.task->open(recipe, resume);
}

void set_medians(TrainingResult& result) {
  std::vector<double> seconds, bubbles;
  for (const StepRecord& record : result.records) {
    if (result.records.size() > 1 && &record == &result.records.front()) continue;
    seconds.push_back(record.step_seconds);
    bubbles.push_back(record.bubble);
  }
  result.median_step_seconds = median(std::move(seconds));
  result.median_bubble = median(std::move(bubbles));
}

TrainingResult train(World& world, const Recipe& recipe, const PlannedRun& run,
                     const TrainingRequest& request) {
  const Device device = recipe.rank_device();
  const std::unique_ptr<const TaskData> opened =
      request.data != nullptr ? nullptr : open_data(recipe, request.resume);
  const TaskData& data = request.data != nullptr ? *request.data : *opened;
  recipe.task->check_inspection(request.inspection, data);
  const TaskStart start{
      .processes = world.processes(),
      .steps_done = resume_position(recipe, request.resume).steps_done,
      .resume = request.resume,
      .notice = request.on_notice,
      .stop = request.stop,
      .agree = [&](const std::function<std::string()>& decide) { return world.agree(decide); }};
  const std::unique_ptr<TaskRun> task = recipe.task->start(recipe, run.plan.steps, data, start);
  RunState state{recipe,
                 run,
                 request,
                 data,
                 *task,
                 device.kind != DeviceKind::kCpu && world.local_ranks() > cuda_backend().count(),
                 world.processes()};
  world.run([&](Group& group, MemoryAccount& account) { run_rank(state, group, account); });
  TrainingResult& result = state.result;
  set_medians(result);
  // With a computing device, a rank's spans measure launches.
  if (recipe.device_kind() != DeviceKind::kCpu) result.layers.clear();
  // If ranks divide layers or samples, a layer's spans include messages, which the probe does not
  // measure; replicas share the update, which the probe measures whole.
  if (run.model.split().ranks == 1 && run.model.split().context.ranks == 1) {
    std::vector<LayerSeconds> trained = result.layers;
    if (run.mesh.axes.weight_ranks() > 1)
      for (LayerSeconds& layer : trained) layer[LayerPart::kUpdate] = {};
    correct_cache(run.probe_cache, run.probe_keys, trained);
  }
  return std::move(result);
}

TrainingResult train(const ResolvedRun& run, const TrainingRequest& request) {
  World world = join_world(run);
  return train(world, run.recipe, plan_run(run, /*probe=*/false), request);
}

}  // namespace strata
