// Trains a recommender on generated clicks: the net on two replicas, its embedding rows in three
// shards. Rows without the last seven updates change the results a little; the number of shards
// changes nothing.
//   build/release/06_recommender
//   fresh rows            loss 0x1.c7420d8a42d04p-2  auc 0.7695
//   seven updates late    loss 0x1.c7c87ec7a602ap-2  auc 0.7650
//   the same on 3 shards  loss 0x1.c7c87ec7a602ap-2  auc 0.7650
//   equal
#include <cstdio>

#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

using namespace strata;

namespace {

constexpr const char* kRecipe = R"(
model: {kind: dlrm, bottom: [16, 8], top: [16]}
data:
  format: synthetic
  synthetic:
    samples: 20000
    validation_samples: 4000
    features: [{name: user, cardinality: 500}, {name: item, cardinality: 200, most_ids: 3}]
    numeric: 2
    linear: 2
  numeric: [n1, n2]
  categorical: [{name: user, width: 8}, {name: item, width: 8, pool: mean, separator: ' '}]
embedding: {optimizer: {kind: adagrad, learning_rate: 0.1}}
train: {steps: 150, mini_batch: 128, decay: constant, validation_samples: 0,
        optimizer: {kind: adamw, learning_rate: 1e-3}}
mesh: {dp: 2, threads: 1}
)";

struct Outcome {
  double loss = 0, auc = 0;
};

Outcome run(const char* name, const std::vector<std::string>& overrides) {
  const Recipe recipe = parse_recipe(kRecipe, "example", overrides);
  const TrainingResult result = train(resolve(recipe));
  const Outcome outcome{result.records.back().loss, result.validation_metrics.front().second};
  std::printf("%-20s  loss %a  auc %.4f\n", name, outcome.loss, outcome.auc);
  return outcome;
}

}  // namespace

int main() {
  run("fresh rows", {});
  const Outcome one = run("seven updates late", {"embedding.staleness=8"});
  const Outcome three =
      run("the same on 3 shards", {"embedding.staleness=8", "embedding.shards=3"});
  std::puts(one.loss == three.loss && one.auc == three.auc ? "equal" : "different");
}
