// Tests that a recommender learns the same on any mesh and wherever its rows are stored; staleness
// depends on the recipe, never on the network.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/inspection_text.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/recommender/row_lookup.h"
#include "strata/run/training_run.h"
#include "strata/tabular/preprocessing.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    "model: {kind: dlrm, bottom: [16, 8], top: [16]}\n"
    "data:\n"
    "  label: click\n"
    "  numeric: [price, age]\n"
    "  categorical: [{name: user, width: 8}, {name: words, width: 8, pool: mean, separator: ' '}]\n"
    "embedding: {optimizer: {kind: adagrad, learning_rate: 0.1}, init: {scale: 0.1}}\n"
    "train: {steps: 24, mini_batch: 64, micro_batch: 16, decay: constant,\n"
    "        optimizer: {kind: adamw, learning_rate: 1e-2}}\n"
    "mesh:  {threads: 1}\n";

class EmbeddingTraining : public testing::Test {
 protected:
  // Clicks depend on user and words: a net without embeddings cannot learn them.
  EmbeddingTraining() {
    std::ofstream log(folder_.path("clicks.tsv"));
    log << "click\tprice\tage\tuser\twords\n";
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::uint64_t user = mix_key(i, 1) % 40, word = mix_key(i, 2) % 60;
      const std::uint64_t other = mix_key(i, 3) % 60;
      const bool click = (mix_key(user, 7) % 100 + mix_key(word, 8) % 100) > 100;
      log << click << '\t' << mix_key(i, 4) % 90 << '\t' << 18 + mix_key(i, 5) % 60 << "\tu" << user
          << "\tw" << word << " w" << other << '\n';
    }
  }

  TrainingResult train(std::vector<std::string> overrides,
                       const TrainingRequest& request = {}) const {
    overrides.push_back("data.train=" + folder_.path("clicks.tsv"));
    const Recipe recipe = parse_recipe(kRecipe, "recipe.yaml", overrides);
    return strata::train(resolve(recipe), request);
  }

  static std::vector<double> losses_of(const TrainingResult& result) {
    std::vector<double> losses;
    for (const StepRecord& record : result.records) losses.push_back(record.loss);
    losses.push_back(result.validation_loss);
    return losses;
  }
  std::vector<double> losses(const std::vector<std::string>& overrides) const {
    return losses_of(train(overrides));
  }

  std::string refusal(const std::vector<std::string>& overrides,
                      const std::string& resume = "") const {
    try {
      train(overrides, {.resume = resume});
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().fix.empty());
      return error.text().what;
    }
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(EmbeddingTraining, HasSameBitsOnAnyPipelineAndShards) {
  for (const char* staleness : {"embedding.staleness=1", "embedding.staleness=5"}) {
    const std::vector<double> one = losses({staleness});
    for (const std::vector<std::string>& cut : std::vector<std::vector<std::string>>{
             {"embedding.shards=3"},
             {"mesh.threads=3"},
             {"mesh.threads=2", "embedding.shards=2", "embedding.memory=1MiB"},
             {"mesh.pp=2"},
             {"mesh.pp=3", "embedding.shards=2"},
             {"mesh.pp=2", "mesh.schedule=gpipe"},
             {"mesh.pp=2", "mesh.schedule=interleaved", "mesh.virtual_stages=2"},
             {"memory.recompute=full"}}) {
      std::vector<std::string> overrides = cut;
      overrides.emplace_back(staleness);
      EXPECT_EQ(losses(overrides), one) << staleness << ' ' << cut[0];
    }
  }
}

TEST_F(EmbeddingTraining, ReplicasEqualWholeMiniBatch) {
  for (const char* staleness : {"embedding.staleness=1", "embedding.staleness=4"}) {
    const std::vector<double> one = losses({staleness});
    for (const std::vector<std::string>& cut :
         std::vector<std::vector<std::string>>{{"mesh.dp=2"},
                                               {"mesh.dp=4", "embedding.shards=2"},
                                               {"mesh.dp=2", "mesh.pp=2"},
                                               {"mesh.dp=3", "mesh.zero=2"}}) {
      std::vector<std::string> overrides = cut;
      overrides.emplace_back(staleness);
      const std::vector<double> other = losses(overrides);
      ASSERT_EQ(other.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_NEAR(other[i], one[i], 1e-5) << staleness << ' ' << cut[0] << " step " << i + 1;
      EXPECT_EQ(losses(overrides), other) << "rows don't depend on who comes first";
    }
  }
}

TEST_F(EmbeddingTraining, StalenessEqualsRecipeAndIsCounted) {
  const TrainingResult result = train({"embedding.staleness=3", "mesh.dp=2"});
  std::vector<std::int64_t> lacked;
  for (const StepRecord& record : result.records) {
    ASSERT_TRUE(record.embedding);
    ASSERT_EQ(record.embedding->staleness.size(), 2u);
    EXPECT_EQ(record.embedding->staleness[0].first, "user");
    const std::vector<std::int64_t>& counts = record.embedding->staleness[0].second;
    // The first step has all updates, the second lacks one, and so on.
    const auto expected = static_cast<std::size_t>(std::min<std::int64_t>(record.step - 1, 2));
    for (std::size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(counts[i] > 0, i == expected) << "step " << record.step << ", " << i;
  }
  EXPECT_NE(losses_of(result), losses({"embedding.staleness=1", "mesh.dp=2"}));
}

TEST_F(EmbeddingTraining, FeaturesMayHaveOwnStalenessOptimizerAndTable) {
  const std::string features =
      "data.categorical=[{name: user, width: 8}, {name: words, width: 8, pool: mean, separator: ' "
      "', "
      "embedding: ";
  const TrainingResult own = train({features + "{staleness: 4}}]"});
  const auto& counts = own.records.back().embedding->staleness;
  EXPECT_EQ(counts[0].second.size(), 1u);
  EXPECT_EQ(counts[1].second.size(), 4u);
  const std::vector<double> plain = losses({});
  EXPECT_NE(losses_of(own), plain);
  EXPECT_NE(losses({features + "{optimizer: {kind: sgd}}}]"}), plain);
  const TrainingResult shared = train({features + "{table: user}}]"});
  EXPECT_EQ(shared.records.back().embedding->staleness.size(), 1u);
  EXPECT_EQ(refusal({"model.kind=deep_wide",
                     "data.categorical=[{name: user, width: 8}, {name: words, width: 4, embedding: "
                     "{table: user}}]"}),
            "features of one table have rows of different widths");
}

TEST_F(EmbeddingTraining, ResumesBitByBitWithStaleRows) {
  for (const char* replicas : {"mesh.dp=1", "mesh.dp=2"}) {
    const std::string name = std::string("saved-") + replicas;
    const std::vector<std::string> late = {"embedding.staleness=5", replicas,
                                           "train.checkpoint_folder=" + folder_.path(name)};
    const std::vector<double> whole = losses({late[0], late[1]});
    std::vector<std::string> first = late;
    first.emplace_back("train.steps=12");
    const std::vector<double> half = losses_of(train(first));
    EXPECT_EQ(std::vector<double>(whole.begin(), whole.begin() + 12),
              std::vector<double>(half.begin(), half.end() - 1));
    const std::string resume = folder_.path(name + "/step-00000012");
    const std::vector<double> rest(whole.begin() + 12, whole.end());
    const auto go_on = [&](const char* more) {
      return train({late[0], late[1], more}, {.resume = resume});
    };
    EXPECT_EQ(losses_of(go_on("embedding.shards=1")), rest) << replicas;
    EXPECT_EQ(losses_of(go_on("embedding.shards=3")), rest) << replicas;
    if (late[1] == "mesh.dp=1") {
      EXPECT_EQ(losses_of(go_on("mesh.pp=2")), rest);
    }
    const auto counts = go_on("embedding.shards=1").records.front().embedding->staleness[0].second;
    EXPECT_GT(counts[4], 0);
    EXPECT_EQ(counts[0], 0);
    // From the second step on, other mini-batches have other ids.
    const auto other = go_on("train.mini_batch=32").records.at(1).embedding->staleness[0].second;
    EXPECT_GT(other[1], 0);
    EXPECT_EQ(other[4], 0);
  }
}

// No later loss reveals a difference from the uninterrupted run.
TEST_F(EmbeddingTraining, RefusesToResumeWithoutPrefetchedRows) {
  const std::vector<std::string> late = {"embedding.staleness=3", "train.steps=14"};
  std::vector<std::string> first = late;
  first.insert(first.end(), {"train.checkpoint_folder=" + folder_.path("saved"),
                             "train.checkpoint_every=12", "train.keep_checkpoints=0"});
  const std::vector<double> whole = losses_of(train(first));
  const std::vector<double> rest(whole.begin() + 12, whole.end());
  const std::string resume = folder_.path("saved/step-00000012");
  const auto go_on = [&](std::vector<std::string> more) {
    more.insert(more.end(), late.begin(), late.end());
    return losses_of(train(more, {.resume = resume}));
  };
  const std::string file = folder_.path("saved/rows/ahead-00000000000000000012-rank-0.rows");
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(go_on({}), rest);
  std::filesystem::remove(file);
  try {
    train(late, {.resume = resume});
    ADD_FAILURE() << "it went on";
  } catch (const UserError& error) {
    EXPECT_NE(error.text().where.find(file), std::string::npos) << error.what();
    EXPECT_EQ(error.text().what, "there is no such file");
    EXPECT_NE(error.text().fix.find("embedding.reread=true"), std::string::npos);
  }
  // With the fix of the error; without staleness; without a step that would read those rows.
  const std::vector<double> others = go_on({"embedding.reread=true"});
  ASSERT_EQ(others.size(), rest.size());
  EXPECT_NE(others, rest);
  EXPECT_NO_THROW(train({"train.steps=14"}, {.resume = resume}));
  EXPECT_NO_THROW(train({"embedding.staleness=3", "train.steps=12"}, {.resume = resume}));
}

// The loss of the step itself is finite, but its update makes the weights too large.
TEST_F(EmbeddingTraining, RefusesValidationLossThatIsNotFinite) {
  const std::vector<std::string> diverges = {"train.steps=1", "train.warmup=0",
                                             "train.optimizer.kind=sgd",
                                             "train.optimizer.learning_rate=1e30"};
  for (const char* mesh : {"mesh.dp=1", "mesh.dp=2"}) {
    std::vector<std::string> overrides = diverges;
    overrides.emplace_back(mesh);
    EXPECT_EQ(refusal(overrides), "the loss of the validation samples is not finite") << mesh;
  }
}

TEST_F(EmbeddingTraining, ResumesWithRowsOnAnyShards) {
  const std::string saved = "train.checkpoint_folder=" + folder_.path("saved");
  const std::vector<double> whole =
      losses_of(train({saved, "train.checkpoint_every=10", "train.keep_checkpoints=0"}));
  const std::string resume = folder_.path("saved/step-00000010");
  const auto rest_of = [&](const std::vector<std::string>& overrides) {
    return losses_of(train(overrides, {.resume = resume}));
  };
  const std::vector<double> rest(whole.begin() + 10, whole.end());
  EXPECT_EQ(rest_of({}), rest);
  EXPECT_EQ(rest_of({"embedding.shards=3"}), rest);
  EXPECT_EQ(rest_of({"mesh.pp=2"}), rest);
  const std::vector<double> replicas = rest_of({"mesh.dp=2"});
  ASSERT_EQ(replicas.size(), rest.size());
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(replicas[i], rest[i], 1e-5);
  // Statistics of numbers come from the checkpoint, not from the current samples.
  EXPECT_EQ(rest_of({"data.fit_samples=100"}), rest);
  EXPECT_EQ(refusal({"train.seed=2"}, resume),
            "its rows and features were trained with another train.seed");
  EXPECT_EQ(refusal({"model.top=[8]"}, resume), "the checkpoint is of another model");
  std::filesystem::remove_all(folder_.path("saved/rows/shard-0"));
  EXPECT_EQ(refusal({}, resume), "the rows of this checkpoint are not there");
}

TEST_F(EmbeddingTraining, LearnsFromRows) {
  const TrainingResult result = train({"train.steps=60"});
  ASSERT_FALSE(result.validation_metrics.empty());
  EXPECT_EQ(result.validation_metrics[0].first, "auc");
  EXPECT_GT(result.validation_metrics[0].second, 0.8);
  const TrainingResult frozen =
      train({"train.steps=60", "embedding.optimizer.learning_rate=0", "embedding.init.kind=zeros"});
  EXPECT_LT(frozen.validation_metrics[0].second, 0.6) << "what rows alone can tell";
}

// Micro-batches of a few samples are products of other shapes on other meshes: a score may differ
// in its last bit.
void expect_near(const NamedMetrics& got, const NamedMetrics& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_NEAR(got[i].second, expected[i].second, 1e-6) << got[i].first;
  }
}

using Numbers = std::map<std::string, double>;

// By feature, the metrics of the validation with this feature permuted.
std::map<std::string, Numbers> importance_of(const TrainingResult& result) {
  std::map<std::string, Numbers> importance;
  const auto json = nlohmann::json::parse(result.inspection.json);
  for (const auto& of : json.at("importance"))
    importance[of.at("feature")] = of.at("permuted").get<Numbers>();
  return importance;
}

// Starts from a checkpoint, so that all meshes have the same weights.
TEST_F(EmbeddingTraining, EvaluatesSameNumbersOnAnyMesh) {
  const std::string grouped = "data.group=user";
  train({grouped, "train.checkpoint_folder=" + folder_.path("saved"), "train.steps=12"});
  const auto evaluate = [&](std::vector<std::string> overrides) {
    overrides.push_back(grouped);
    overrides.push_back("train.steps=12");
    // 215 samples: all parts differ in size
    overrides.push_back("data.validation_fraction=0.1075");
    return train(overrides, {.resume = folder_.path("saved"), .inspection = {.importance = true}});
  };
  const TrainingResult one = evaluate({});
  ASSERT_TRUE(one.records.empty());
  ASSERT_EQ(one.validation_metrics.size(), 4u);
  EXPECT_EQ(one.validation_metrics[1].first, "grouped_auc");
  const auto importance = importance_of(one);
  ASSERT_EQ(importance.size(), 4u);
  for (const std::vector<std::string>& mesh :
       std::vector<std::vector<std::string>>{{"mesh.dp=2"},
                                             {"mesh.dp=3", "embedding.shards=2"},
                                             {"mesh.pp=2"},
                                             {"mesh.dp=2", "mesh.pp=2"}}) {
    const TrainingResult other = evaluate(mesh);
    EXPECT_NEAR(other.validation_loss, one.validation_loss, 1e-8) << mesh[0];
    expect_near(other.validation_metrics, one.validation_metrics);
    const auto others = importance_of(other);
    ASSERT_EQ(others.size(), importance.size());
    for (const auto& [feature, mine] : importance) {
      const auto& theirs = others.at(feature);
      ASSERT_EQ(theirs.size(), mine.size());
      for (const auto& [name, value] : mine)
        EXPECT_NEAR(theirs.at(name), value, name == "log_loss" ? 1e-8 : 1e-6)
            << mesh[0] << ' ' << feature << ' ' << name;
    }
  }
}

TEST_F(EmbeddingTraining, ImportanceReflectsInformationOfFeature) {
  const TrainingResult result =
      train({"train.steps=60",
             "data.categorical=[{name: user, width: 8}, {name: words, width: 8, "
             "pool: mean, separator: ' '}, {name: other, column: age, width: 8}]"},
            {.inspection = {.importance = true}});
  const auto importance = importance_of(result);
  ASSERT_EQ(importance.size(), 5u);
  const auto json = nlohmann::json::parse(result.inspection.json);
  const double whole = json.at("auc");
  EXPECT_EQ(whole, result.validation_metrics.at(0).second);
  std::map<std::string, double> lost;
  for (const auto& [feature, permuted] : importance) lost[feature] = whole - permuted.at("auc");
  EXPECT_GT(lost.at("user"), 0.05);
  EXPECT_GT(lost.at("words"), 0.05);
  for (const char* noise : {"price", "age", "other"})
    EXPECT_LT(std::abs(lost.at(noise)), 0.03) << noise;
  const std::string text = tables_text(result.inspection.tables);
  EXPECT_LT(text.find("user"), text.find("price")) << text;
  EXPECT_EQ(json["importance"].size(), 5u);
  EXPECT_LT(json["importance"][0]["auc_change"].get<double>(), -0.05);
}

// By table, in the order of the recipe.
nlohmann::json hot_ids_of(const TrainingResult& result) {
  return nlohmann::json::parse(result.inspection.json).at("hot_ids");
}

TEST_F(EmbeddingTraining, ReportsHotIdsAndRows) {
  const std::string saved = folder_.path("saved");
  const TrainingResult result = train({"train.checkpoint_folder=" + saved, "embedding.shards=3"},
                                      {.inspection = {.hot_ids = 4}});
  const auto hot = hot_ids_of(result);
  ASSERT_EQ(hot.size(), 2u);
  for (std::size_t table = 0; table < 2; ++table) {
    std::int64_t reads = 0;
    for (const StepRecord& record : result.records)
      for (const std::int64_t count : record.embedding->staleness[table].second) reads += count;
    EXPECT_EQ(hot[table].at("updates"), reads) << "each row that a step has read it updates";
    EXPECT_EQ(hot[table].at("cold_updates"), 0);
    EXPECT_EQ(hot[table].at("rows"), table == 0 ? 40 : 60);
    const auto& ids = hot[table].at("ids");
    ASSERT_EQ(ids.size(), 4u);
    EXPECT_LE(ids[0].at("updates"), 24);
    for (std::size_t i = 1; i < ids.size(); ++i)
      EXPECT_GE(ids[i - 1].at("updates"), ids[i].at("updates"));
    const RowDescription row =
        find_row({.where = saved, .feature = hot[table].at("table"), .id = ids[0].at("id").dump()});
    EXPECT_TRUE(row.there);
    EXPECT_EQ(row.hits, ids[0].at("updates"));
    EXPECT_EQ(row.tier, RowTier::kMemory);
    EXPECT_EQ(row.value.size(), 8u);
    EXPECT_EQ(row.state.size(), 8u);
    EXPECT_LE(row.last_update, 24);
  }
  const auto ask = [&](const std::string& feature, const std::string& text) {
    return find_row({.where = saved, .feature = feature, .id = text, .is_text = true});
  };
  EXPECT_TRUE(ask("user", "u3").there);
  EXPECT_NE(ask("user", "u3").value, ask("user", "u4").value);
  const RowDescription unknown = ask("user", "nobody");
  EXPECT_FALSE(unknown.there);
  EXPECT_EQ(unknown.value.size(), 8u) << "what it would begin with";
  EXPECT_THROW(ask("usr", "u3"), UserError);
  EXPECT_THROW(find_row({.where = saved, .feature = "user", .id = "u3"}), UserError);
}

TEST_F(EmbeddingTraining, ShowsVocabularyTextsOfHotIds) {
  const TrainingResult result = train(
      {"data.categorical=[{name: user, width: 8, ids: vocabulary, min_count: 40}, {name: again, "
       "column: user, width: 8, ids: vocabulary, embedding: {table: user}}, {name: words, width: "
       "8, pool: mean, separator: ' '}]"},
      {.inspection = {.hot_ids = 40}});
  const auto hot = hot_ids_of(result);
  ASSERT_EQ(hot.size(), 2u);
  std::map<std::uint64_t, std::string> texts;
  for (const auto& id : hot[0].at("ids")) texts[id.at("id")] = id.at("text");
  // Sorted by bytes; an id that is too rare for one feature is known to the other.
  EXPECT_TRUE(texts.at(0).ends_with(" / u0") || texts.at(0) == "u0") << texts.at(0);
  EXPECT_NE(texts.at(1).find("u1"), std::string::npos);
  const std::string hashed = hot[1].at("ids").at(0).at("text");
  EXPECT_TRUE(hashed.starts_with("w")) << "hashed, and read again";
  const std::string text = tables_text(result.inspection.tables);
  EXPECT_NE(text.find("\ntext "), std::string::npos) << text;
  EXPECT_NE(text.find("\n" + hashed + " "), std::string::npos) << text;
}

TEST_F(EmbeddingTraining, ShowsHashedTextsButNotNumbersOfHotIds) {
  const TrainingResult result =
      train({"data.categorical=[{name: user, width: 8}, {name: years, column: age, width: 8, ids: "
             "number}]"},
            {.inspection = {.hot_ids = 40}});
  const auto hot = hot_ids_of(result);
  ASSERT_EQ(hot.size(), 2u);
  const auto& users = hot[0].at("ids");
  ASSERT_EQ(users.size(), 40u);
  for (const auto& id : users)
    EXPECT_EQ(hash_text("user", id.at("text").get<std::string>()), id.at("id")) << id;
  for (std::size_t i = 1; i < users.size(); ++i) {
    const std::int64_t before = users[i - 1].at("updates"), now = users[i].at("updates");
    EXPECT_TRUE(before > now || users[i - 1].at("id").get<std::uint64_t>() <
                                    users[i].at("id").get<std::uint64_t>());
  }
  EXPECT_FALSE(hot[1].at("ids").at(0).contains("text")) << "a number is its own text";
}

TEST_F(EmbeddingTraining, CountsRowsBytesAndSamples) {
  const TrainingResult result = train({"embedding.shards=2"});
  EXPECT_EQ(result.unit, "sample");
  ASSERT_EQ(result.embeddings.size(), 2u);
  EXPECT_EQ(result.embeddings[0].table, "user");
  EXPECT_EQ(result.embeddings[0].size.rows, 40);
  EXPECT_EQ(result.embeddings[1].size.rows, 60);
  EXPECT_EQ(sum_of(result.embeddings).parameters, 800);
  std::int64_t rows = 0;
  for (const StepRecord& record : result.records) {
    EXPECT_EQ(record.unit, "sample");
    EXPECT_GT(record.units_per_second, 0);
    ASSERT_TRUE(record.embedding && record.embedding->size);
    EXPECT_GE(record.embedding->size->rows, rows) << "nothing is evicted";
    rows = record.embedding->size->rows;
    EXPECT_GE(record.embedding->size->bytes, rows * (8 + 8) * 4) << "values and states";
  }
}

TEST_F(EmbeddingTraining, AsynchronousNetUsesDelayedGradients) {
  const std::vector<double> hybrid = losses({"embedding.staleness=3"});
  const TrainingResult late = train({"embedding.staleness=3", "embedding.mode=asynchronous"});
  const std::vector<double> asynchronous = losses_of(late);
  // The net skips two updates, which is visible from the second step on.
  EXPECT_EQ(asynchronous[0], hybrid[0]);
  EXPECT_NE(asynchronous[1], hybrid[1]);
  EXPECT_EQ(losses({"embedding.staleness=1", "embedding.mode=asynchronous"}), losses({}));
  // With constant rows, the first gradient changes the weights of the fourth step, not earlier or
  // later.
  const std::vector<std::string> still = {"embedding.optimizer.learning_rate=0"};
  const std::vector<double> unmoved = losses({still[0], "train.optimizer.learning_rate=0"});
  const std::vector<double> moved =
      losses({still[0], "embedding.staleness=3", "embedding.mode=asynchronous"});
  for (int step = 0; step < 3; ++step) EXPECT_EQ(moved[step], unmoved[step]) << step;
  EXPECT_NE(moved[3], unmoved[3]);
  EXPECT_EQ(losses({"embedding.staleness=3", "embedding.mode=asynchronous", "mesh.pp=2"}),
            asynchronous);
}

// Replicas read each other's gradients in place, so none may be replaced before all have read them.
TEST_F(EmbeddingTraining, AsynchronousReplicasRepeatBitForBit) {
  const std::vector<std::string> fields = {"embedding.staleness=3", "embedding.mode=asynchronous",
                                           "mesh.dp=2", "train.steps=40"};
  const std::vector<double> first = losses(fields);
  for (int round = 0; round < 5; ++round) ASSERT_EQ(losses(fields), first) << round;
}

TEST_F(EmbeddingTraining, RefusesContradictoryOptions) {
  EXPECT_EQ(refusal({"embedding.mode=synchronous", "embedding.staleness=2"}),
            "embedding.mode: rows of a synchronous run are never stale");
  EXPECT_NE(refusal({"mesh.tp=2"}), "");
  EXPECT_NE(refusal({"train.precision=bf16"}), "");
}

}  // namespace
}  // namespace strata
