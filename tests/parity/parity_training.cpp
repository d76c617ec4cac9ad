// Trains a recipe, for the tests of this folder.
//
//   parity_training RECIPE FOLDER [FIELD=VALUE ...]
//
// Prints one JSON object per step: the tokens and targets that it read, the loss, the gradient's
// norm. FOLDER gets first.safetensors and last.safetensors: all weights before and after, under our
// names. Some targets are ignored, which no text can request: another share in every sample, so
// that replicas and micro-batches have different numbers of valid tokens.
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/comm/ranks.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

void ignore_some(MiniBatch& batch) {
  const at::Tensor& targets = batch.inputs[1];
  for (std::int64_t sample = 0; sample < batch.samples; ++sample)
    targets[sample].narrow(0, 0, targets.size(1) * sample / batch.samples).fill_(kIgnoredTarget);
  batch.valid_tokens = targets.ne(kIgnoredTarget).sum().item<std::int64_t>();
}

std::vector<std::vector<std::int64_t>> rows(const at::Tensor& tokens) {
  std::vector<std::vector<std::int64_t>> result;
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    const std::int64_t* begin = tokens[row].const_data_ptr<std::int64_t>();
    result.emplace_back(begin, begin + tokens.size(1));
  }
  return result;
}

using Weights = std::map<std::string, at::Tensor>;

void write(const std::string& path, const Weights& weights) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, weight] : weights) tensors.push_back({name, weight});
  write_safetensors(path, tensors);
}

void train_and_write(const Recipe& recipe, const std::string& folder) {
  const PlannedRun run = plan_run(resolve(recipe), /*probe=*/false);
  const std::unique_ptr<const TaskData> data = open_data(recipe);
  Weights first, last;
  std::mutex mutex;
  run_thread_ranks(
      {.ranks = run.ranks, .device = recipe.rank_device()}, [&](Group& group, MemoryAccount&) {
        const auto gather = [&](Trainer& trainer, Weights& weights) {
          const std::lock_guard lock(mutex);
          assemble(trainer.owned_weights(), weights);
        };
        Trainer trainer(run.model, run.plan.steps, group, trainer_options(recipe));
        trainer.initialise();
        gather(trainer, first);
        for (std::int64_t step = 0; step < recipe.train.steps; ++step) {
          MiniBatch batch = data->at(step * recipe.train.mini_batch);
          ignore_some(batch);
          const StepOutcome& outcome = trainer.step(batch, recipe.learning_rate().at(step));
          if (group.rank() > 0) continue;
          std::puts(nlohmann::json{{"tokens", rows(batch.inputs[0])},
                                   {"targets", rows(batch.inputs[1])},
                                   {"loss", outcome.loss},
                                   {"gradient_norm", outcome.gradient_norm}}
                        .dump()
                        .c_str());
        }
        gather(trainer, last);
      });
  write(folder + "/first.safetensors", first);
  write(folder + "/last.safetensors", last);
}

}  // namespace
}  // namespace strata

int main(int count, char** arguments) {
  try {
    if (count < 3) {
      std::fprintf(stderr, "parity_training RECIPE FOLDER [FIELD=VALUE ...]\n");
      return 2;
    }
    strata::train_and_write(strata::load_recipe(arguments[1], {arguments + 3, arguments + count}),
                            arguments[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return strata::exit_code(error);
  }
}
