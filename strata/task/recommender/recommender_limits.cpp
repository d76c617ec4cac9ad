#include "strata/task/recommender/recommender_limits.h"

#include <algorithm>
#include <cstdint>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/schedule/step_plan.h"
#include "strata/task/countable_sizes.h"

namespace strata {
namespace {

constexpr ErrorSource kRecommenderLimits{"task.recommender"};

void check_disk(const MemoryOptions& memory, const FieldPlace& where) {
  const std::string what =
      "a recommender's net does not live on a disk: commits there have no rows";
  for (const auto& [field, choice] :
       {std::pair("memory.weights", memory.weights),
        std::pair("memory.gradients", memory.gradients), std::pair("memory.states", memory.states)})
    if (choice == TierChoice::kDisk)
      throw kRecommenderLimits.user(
          where(field), field + (": " + what), "device or host", "disk",
          "set " + std::string(field) + "=host; embedding.cold is the disk of rows");
  if (!memory.disk.path.empty())
    throw kRecommenderLimits.user(where("memory.disk.path"), "memory.disk.path: " + what,
                                  "device or host memory", memory.disk.path,
                                  "remove memory.disk; embedding.cold is the disk of rows");
}

// FTRL divides by its learning rate.
void check_optimizers(const RecommenderFields& fields, const OptimizerOptions& dense,
                      const FieldPlace& where) {
  if (fields.embedding.mode == EmbeddingMode::kAsynchronous && freezes_variances(dense.kind))
    throw kRecommenderLimits.user(
        where("train.optimizer.kind"),
        "train.optimizer.kind: an asynchronous net applies summed gradients late, and " +
            std::string(name_of(dense.kind)) + " sums none",
        "another optimizer", name_of(dense.kind),
        "set embedding.mode=hybrid, or train.optimizer.kind=adamw");
  if (dense.kind == OptimizerKind::kZeroOneAdam)
    throw kRecommenderLimits.user(
        where("train.optimizer.kind"),
        "train.optimizer.kind: replicas of a recommender share rows, so their nets move together",
        "another optimizer", name_of(dense.kind), "set train.optimizer.kind=onebit-adam");
  for (const FeatureSpec& table : worker_options(fields).tables)
    if (table.optimizer.kind == RowOptimizerKind::kFtrl && table.optimizer.learning_rate == 0)
      throw kRecommenderLimits.user(
          where("embedding.optimizer.learning_rate"),
          "embedding.optimizer.learning_rate: ftrl divides by its learning rate", "more than 0",
          "0, for '" + table.name + "'", "set embedding.optimizer.learning_rate=0.05");
}

void check_batch(const RecommenderFields& fields, const TrainOptions& train,
                 const FieldPlace& where) {
  const RecommenderOptions& model = fields.model;
  const RecommenderInputs inputs = inputs_of(fields);
  auto widest = static_cast<double>(inputs.rows() + inputs.numeric);
  for (const auto* widths : {&model.bottom, &model.top})
    for (const std::int64_t width : *widths) widest = std::max(widest, static_cast<double>(width));
  check_elements(widest * static_cast<double>(train.micro_batch), where("train.micro_batch"),
                 "train.micro_batch: a micro-batch has more elements than can be counted",
                 "set train.micro_batch to a smaller number");
}

}  // namespace

void check_recommender(const RecommenderFields& fields, const Recipe& recipe,
                       const FieldPlace& where) {
  check_disk(recipe.memory, where);
  check_optimizers(fields, recipe.optimizer, where);
  if (recipe.outer.is_on())
    throw kRecommenderLimits.user(where("train.outer_steps.every"),
                                  "train.outer_steps.every: replicas of a recommender share rows, "
                                  "so their nets train together",
                                  "0", std::to_string(recipe.outer.every),
                                  "set train.outer_steps.every=0");
  check_batch(fields, recipe.train, where);
  if (fields.data.format == SampleFormat::kSynthetic)
    require_steps(fields, recipe.train, fields.data.synthetic.samples, where);
}

void check_planned_recommender(const RecommenderFields& fields, const StepDecisions& decisions,
                               int processes) {
  const EmbeddingOptions& embedding = fields.embedding;
  if (!decisions.tiers.layers.empty() && embedding.mode == EmbeddingMode::kAsynchronous)
    throw kRecommenderLimits.user(
        "embedding.mode", "embedding.mode: gradients of an asynchronous net stay on the device",
        "a net that fits in memory.device", "one of which something lives on the host",
        "set memory.device to more, or embedding.mode=hybrid");
  if (embedding.is_local() && processes > 1)
    throw kRecommenderLimits.user(
        "embedding.servers",
        "embedding.servers: local rows live in one process, and the run has several",
        "addresses of servers", "local",
        "start servers and name them, or run all ranks in one process");
}

void require_steps(const RecommenderFields& fields, const TrainOptions& train, std::int64_t samples,
                   const FieldPlace& where) {
  const std::int64_t mini_batch = train.mini_batch, epochs = fields.epochs;
  if (fields.data.last_batch == EpochEnd::kDrop && mini_batch > samples)
    throw kRecommenderLimits.user(
        where("data.last_batch"), "data.last_batch: every mini-batch would be dropped",
        "a mini-batch of at most " + std::to_string(samples) + ", the samples of an epoch",
        std::to_string(mini_batch), "set data.last_batch=short");
  if (epochs > 0 && fields.data.last_batch == EpochEnd::kContinue && epochs * samples < mini_batch)
    throw kRecommenderLimits.user(
        where("train.epochs"), "train.epochs: its samples are fewer than one mini-batch",
        "a mini-batch of at most " + std::to_string(epochs * samples), std::to_string(mini_batch),
        "set train.mini_batch=" + std::to_string(epochs * samples));
}

}  // namespace strata
