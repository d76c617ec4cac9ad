// Serves recommenders: one process, which holds the net, and the embeddings unless servers do.
#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/checkpoint/reader.h"
#include "strata/cli/arguments.h"
#include "strata/cli/recommender/serving/column_scorer.h"
#include "strata/cli/server/count_text.h"
#include "strata/cli/server/serving_kind.h"
#include "strata/cli/server/serving_kind_makers.h"
#include "strata/cli/version.h"
#include "strata/kserve/model/sample_model.h"
#include "strata/kserve/server_routes.h"
#include "strata/run/recipe_file.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/recommender_task.h"
#include "strata/transport/rendezvous.h"

namespace strata {
namespace {

// A checkpoint with its recipe.
struct TrainedRun {
  std::string folder;
  Recipe recipe;
  const RecommenderFields& fields() const { return *recommender_fields(recipe); }
};

TrainedRun trained_run(const std::string& path, const std::vector<std::string>& overrides) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  TrainedRun run{.folder = checkpoint.folder(),
                 .recipe = parse_recipe(checkpoint.manifest().recipe, path, overrides)};
  if (recommender_fields(run.recipe) == nullptr)
    throw UserError({.operation = "cli.serve",
                     .where = "--set",
                     .what = "a checkpoint of a recommender is served as one",
                     .expected = "task recommender",
                     .got = run.recipe.task->title(),
                     .fix = "override neither task nor model.kind"});
  run.recipe.mesh.axes = {};
  return run;
}

std::shared_ptr<CheckpointScorer> load_scorer(const TrainedRun& run) {
  return std::make_shared<CheckpointScorer>(
      run.fields(), static_cast<std::uint64_t>(run.recipe.train.seed), run.folder);
}

void require_servable(const TrainedRun& run) {
  const auto refuse = [&](std::string where, std::string what, std::string expected,
                          std::string got, std::string fix) {
    throw UserError({.operation = "cli.serve",
                     .where = std::move(where),
                     .what = std::move(what),
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .fix = std::move(fix)});
  };
  if (run.recipe.device == DeviceChoice::kCuda)
    refuse("mesh.device", "a server of a recommender computes on the CPU", "cpu", "cuda",
           "pass --set mesh.device=cpu");
  if (const Rendezvous here = rendezvous_from_environment(); !here.alone())
    refuse("strata launch", "one process serves a recommender", "1 process",
           std::to_string(here.processes), "run strata serve without strata launch");
}

class RecommenderCheckpoint final : public ServedCheckpoint {
 public:
  RecommenderCheckpoint(const ServeRequest& request, TrainedRun run, SampleLimits limits,
                        std::int64_t most_stale)
      : request_(request),
        run_(std::move(run)),
        scorer_(std::make_shared<ColumnScorer>(
            Preprocessing::load_state(complete(run_.fields().data),
                                      saved_preprocessing(run_.folder)),
            ColumnScorer::Options{.threads = run_.recipe.threads_per_rank(),
                                  .most_stale = most_stale},
            [this] { return load_scorer(run_); })),
        model_(std::make_shared<SampleModel>(request.name, "strata_recommender", scorer_, limits)),
        models_(
            std::make_shared<const ModelRepository>(std::vector<ModelRepository::Model>{model_})) {}

  std::shared_ptr<const ModelRepository> models() const override { return models_; }
  HttpRoutes routes() const override { return inference_routes(models_, request_.keys, kVersion); }
  std::string checkpoint() const override { return run_.folder; }
  std::string description() const override {
    return run_.recipe.task->title() + ", " +
           count_of(static_cast<std::int64_t>(model_->description().inputs.size()), "column");
  }

  void wait_until_ready() override { scorer_->wait_until_ready(); }
  bool ends_within(std::chrono::milliseconds time) override {
    std::this_thread::sleep_for(time);
    return false;
  }

  std::int64_t running() const override { return model_->running(); }
  std::string totals() const override {
    const ModelStatistics statistics = model_->statistics();
    return count_of(static_cast<std::int64_t>(statistics.success.count), "answer") + " in " +
           std::to_string(statistics.executions) + " forward passes";
  }

  // Both checkpoints are in memory until the passes that use the earlier one have ended.
  bool load(const std::string& checkpoint) override {
    if (refuses_loads_) return false;
    const TrainedRun run = trained_run(checkpoint, request_.overrides);
    require_servable(run);
    scorer_->replace(load_scorer(run), checkpoint);
    return true;
  }
  void refuse_loads() override { refuses_loads_ = true; }
  bool ready() const override { return model_->ready(); }

 private:
  const ServeRequest request_;
  const TrainedRun run_;
  const std::shared_ptr<ColumnScorer> scorer_;
  const std::shared_ptr<SampleModel> model_;
  const std::shared_ptr<const ModelRepository> models_;
  std::atomic<bool> refuses_loads_ = false;
};

class RecommenderServing final : public ServingKind {
 public:
  std::string task() const override { return "recommender"; }
  std::string title() const override { return "Options of recommenders"; }

  void add_options(CLI::App& verb) override {
    verb.add_option("--batch", samples_, "samples of a forward pass, and of a request, at most")
        ->type_name("COUNT")
        ->check(between(1, 65536))
        ->capture_default_str();
    verb.add_option("--batch-delay", delay_milliseconds_,
                    "that a request waits for others to share its forward pass, at most")
        ->type_name("MILLISECONDS")
        ->check(between(0, 10000))
        ->capture_default_str();
    verb.add_option("--stale", most_stale_,
                    "updates that embeddings of servers may lack, at most; else status 503")
        ->type_name("COUNT")
        ->check(at_least(0))
        ->capture_default_str();
  }

  std::shared_ptr<ServedCheckpoint> open(const ServeRequest& request) override {
    TrainedRun run = trained_run(request.checkpoint, request.overrides);
    require_servable(run);
    const SampleLimits limits{
        .samples = samples_,
        .delay = std::chrono::microseconds(std::llround(delay_milliseconds_ * 1e3)),
        .requests = static_cast<std::size_t>(request.waiting)};
    return std::make_shared<RecommenderCheckpoint>(request, std::move(run), limits, most_stale_);
  }

 private:
  std::int64_t samples_ = 1024;
  double delay_milliseconds_ = 2;
  std::int64_t most_stale_ = 1000;
};

}  // namespace

MakeServingKind recommender_serving() {
  return [] { return std::unique_ptr<ServingKind>(std::make_unique<RecommenderServing>()); };
}

}  // namespace strata
