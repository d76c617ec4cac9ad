#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "strata/base/scratch_folder.h"
#include "strata/run/recipe_file.h"
#include "strata/task/recommender/recommender_task.h"
#include "strata/task/recommender/rows_cost.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    "model: {kind: dlrm, bottom: [16, 16], top: [16]}\n"
    "data:\n"
    "  format: synthetic\n"
    "  synthetic: {samples: 5000, validation_samples: 100, numeric: 2, features: [\n"
    "    {name: user, cardinality: 400}, {name: words, cardinality: 300, most_ids: 3}]}\n"
    "embedding: {staleness: 4}\n"
    "train: {steps: 10, mini_batch: 64}\n"
    "mesh:  {threads: 1}\n";

Recipe recipe_with(const std::vector<std::string>& overrides) {
  return parse_recipe(kRecipe, "recipe.yaml", overrides);
}

RowsCost estimated_rows_of(const Recipe& recipe, const MachineProfile& machine) {
  return estimated_rows(*recommender_fields(recipe), recipe, machine);
}

RowsCost probed_rows_of(const Recipe& recipe, const MachineProfile& machine,
                        const std::string& cache) {
  return probed_rows(*recommender_fields(recipe), recipe, machine, cache);
}

std::string rows_probe_key_of(const Recipe& recipe) {
  return rows_probe_key(*recommender_fields(recipe), recipe);
}

MachineProfile machine_with(double bandwidth, double latency) {
  MachineProfile machine;
  machine.host.cores = 64;
  machine.network.bandwidth.count = static_cast<std::int64_t>(bandwidth);
  machine.network.latency = latency;
  return machine;
}

TEST(SampleTokens, AreZeroForRecommender) {
  EXPECT_EQ(recipe_with({}).task->sample_tokens(), 0) << "its steps are counted in samples";
}

TEST(RowsCost, IncludesRoundTripsAndBytesOfServers) {
  const Recipe local = recipe_with({}), remote = recipe_with({"embedding.servers=['a:1', 'b:1']"});
  const RowsCost none = estimated_rows_of(local, machine_with(1e9, 1e-3));
  EXPECT_EQ(none.staleness, 3);
  EXPECT_EQ(none.processors, 0) << "64 cores are enough";
  EXPECT_EQ(none.wait_seconds, estimated_rows_of(local, machine_with(1e6, 1)).wait_seconds);
  const RowsCost near = estimated_rows_of(remote, machine_with(1e9, 1e-3));
  const RowsCost far = estimated_rows_of(remote, machine_with(1e9, 6e-3));
  EXPECT_NEAR(far.wait_seconds - near.wait_seconds, 2 * 5e-3, 1e-12);
  EXPECT_EQ(far.beside_seconds, near.beside_seconds) << "a wait keeps no processor busy";
  const double bytes = (near.wait_seconds - none.wait_seconds - 2e-3) * 1e9;
  // Two rows of 64 samples are at least the bytes of their fp32 values in both directions, and less
  // than twice that.
  EXPECT_GT(bytes, 64 * 4 * 16 * 2);
  const RowsCost slow = estimated_rows_of(remote, machine_with(1e5, 1e-3));
  EXPECT_NEAR(slow.wait_seconds - none.wait_seconds - 2e-3, bytes / 1e5, 1e-9);
  EXPECT_GT(slow.beside_seconds, bytes / 2 / 1e5) << "the network is busy with every step";
}

TEST(RowsCost, DividesAvailableProcessors) {
  MachineProfile machine = machine_with(0, 0);
  machine.host.cores = 2;
  EXPECT_EQ(estimated_rows_of(recipe_with({}), machine).processors, 0);
  EXPECT_EQ(estimated_rows_of(recipe_with({"mesh.dp=2"}), machine).processors, 1);
  EXPECT_EQ(estimated_rows_of(recipe_with({"mesh.threads=2"}), machine).processors, 2);
}

TEST(RowsCost, IsMeasuredOnceAndCached) {
  const ScratchFolder folder;
  const std::string cache = folder.path("rows.json");
  for (const char* mesh : {"mesh.dp=1", "mesh.dp=2"}) {
    const Recipe recipe = recipe_with({mesh});
    const RowsCost measured = probed_rows_of(recipe, machine_with(0, 0), cache);
    for (const double seconds :
         {measured.rank_seconds, measured.beside_seconds, measured.wait_seconds}) {
      EXPECT_GT(seconds, 0) << mesh;
      EXPECT_LT(seconds, 30) << mesh;
    }
    EXPECT_GE(measured.work_seconds, measured.beside_seconds) << mesh;
    const RowsCost known = probed_rows_of(recipe, machine_with(0, 0), cache);
    EXPECT_EQ(known.beside_seconds, measured.beside_seconds);
    EXPECT_EQ(known.work_seconds, measured.work_seconds);
    EXPECT_EQ(known.wait_seconds, measured.wait_seconds);
    EXPECT_EQ(known.rank_seconds, measured.rank_seconds);
  }
  const RowsCost one = probed_rows_of(recipe_with({"mesh.dp=1"}), machine_with(0, 0), cache);
  const RowsCost two = probed_rows_of(recipe_with({"mesh.dp=2"}), machine_with(0, 0), cache);
  EXPECT_NE(one.beside_seconds, two.beside_seconds) << "another mesh is another measurement";
}

TEST(RowsCost, IsMeasuredAgainForOtherData) {
  const std::string key = rows_probe_key_of(recipe_with({}));
  EXPECT_TRUE(key.starts_with("rows 3 ")) << key;
  EXPECT_EQ(
      key, rows_probe_key_of(recipe_with({"train.steps=11", "train.optimizer.learning_rate=0.1"})));
  const std::string feature = "data.categorical=[{name: words, width: 8";
  std::vector<std::vector<std::string>> all = {{"train.steps=10"},
                                               {"data.synthetic.samples=6000"},
                                               {"data.synthetic.drift_every=10"},
                                               {"embedding.wire.rows=fp16"}};
  for (const char* more :
       {", separator: ' '}]", ", last: 2, separator: ' '}]", ", last: 3, separator: ' '}]",
        ", last: 3, separator: ','}]", ", pool: mean, separator: ' '}]",
        ", separator: ' ', embedding: {table: shared}}]"})
    all.push_back(
        {"data.synthetic.numeric=0", "model.bottom=[]", "model.interaction=cat", feature + more});
  std::set<std::string> keys;
  for (const std::vector<std::string>& overrides : all)
    EXPECT_TRUE(keys.insert(rows_probe_key_of(recipe_with(overrides))).second) << overrides.back();
  const std::vector<std::string> log = {"data.train=log",
                                        "data.label=click",
                                        "data.synthetic.numeric=0",
                                        "data.synthetic.features=[]",
                                        "model.bottom=[]",
                                        "model.interaction=cat",
                                        feature + "}]"};
  std::vector<std::string> csv = log, tsv = log;
  csv.push_back("data.format=csv"), tsv.push_back("data.format=tsv");
  EXPECT_NE(rows_probe_key_of(recipe_with(csv)), rows_probe_key_of(recipe_with(tsv)));
}

// Four times as many samples take about four times as long.
TEST(RowsCost, GrowsWithMiniBatch) {
  const auto beside = [](const char* mini_batch) {
    double least = std::numeric_limits<double>::infinity();
    for (int probe = 0; probe < 3; ++probe)  // other programs slow some probes down
      least = std::min(
          least, probed_rows_of(recipe_with({mini_batch}), machine_with(0, 0), "").beside_seconds);
    return least;
  };
  const double few = beside("train.mini_batch=128"), many = beside("train.mini_batch=1024");
  EXPECT_GT(many, 2 * few);
  EXPECT_LT(many, 20 * few);
}

TEST(RowsCost, WithoutDataIsEstimated) {
  const Recipe recipe = recipe_with({"model.bottom=[]", "model.interaction=cat", "data.format=csv",
                                     "data.train=none.csv", "data.synthetic.features=[]",
                                     "data.categorical=[{name: user, width: 8}]"});
  EXPECT_EQ(probed_rows_of(recipe, machine_with(0, 0), "").beside_seconds,
            estimated_rows_of(recipe, machine_with(0, 0)).beside_seconds);
}

}  // namespace
}  // namespace strata
