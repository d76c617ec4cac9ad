#include "strata/run/recipe_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "strata/base/errors.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

constexpr const char* kRecipe = R"(
model:  {kind: gpt, layers: 6, width: 384, heads: 6, vocab: 256, context: 256, dropout: 0.1}
data:   {train: kjv.txt, tokenizer: bytes, validation_fraction: 0.05}
train:  {steps: 400, mini_batch: 32, micro_batch: 4, optimizer: {kind: adamw, learning_rate: 1e-3}, warmup: 40, clip: 1.0, seed: 1}
mesh:   {pp: 2, schedule: 1f1b}
memory: {device: 2GiB, recompute: auto}
)";

Recipe parse(const std::vector<std::string>& overrides = {}) {
  return parse_recipe(kRecipe, "recipe.yaml", overrides);
}

ErrorText refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse_recipe(text, "recipe.yaml", overrides);
  } catch (const UserError& error) {
    EXPECT_FALSE(error.text().fix.empty()) << error.what();
    return error.text();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

ErrorText refusal_of(const std::string& assignment) { return refusal(kRecipe, {assignment}); }

TEST(Recipe, ReadsEveryField) {
  const Recipe recipe = parse();
  const TextTask& text = *text_task(recipe);
  EXPECT_EQ(text.model_options().layers, 6);
  EXPECT_EQ(text.model_options().width, 384);
  EXPECT_EQ(text.model_options().dropout, 0.1);
  EXPECT_EQ(text.data_options().train, "kjv.txt");
  EXPECT_EQ(text.data_options().validation_fraction, 0.05);
  EXPECT_EQ(recipe.train.steps, 400);
  EXPECT_EQ(recipe.train.mini_batch, 32);
  EXPECT_EQ(recipe.train.micro_batch, 4);
  EXPECT_EQ(recipe.train.warmup, 40);
  EXPECT_EQ(recipe.train.clip, 1.0);
  EXPECT_EQ(recipe.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(recipe.mesh.axes[Axis::kPipeline], 2);
  EXPECT_EQ(recipe.mesh.schedule, ScheduleKind::k1f1b);
  EXPECT_EQ(recipe.memory.device.count, std::int64_t{2} << 30);
  EXPECT_EQ(recipe.memory.recompute, RecomputeMode::kAuto);
}

TEST(Recipe, IsOverriddenBySet) {
  EXPECT_EQ(parse({"train.steps=7", "train.optimizer.kind=sgd"}).train.steps, 7);
  EXPECT_EQ(parse({"train.steps=7", "train.optimizer.kind=sgd"}).optimizer.kind,
            OptimizerKind::kSgd);
}

TEST(Recipe, EffectiveTextParsesToSameRecipe) {
  const Recipe recipe = parse({"train.steps=7"});
  const Recipe reread = parse_recipe(recipe.text, "manifest", {});
  EXPECT_EQ(reread.text, recipe.text);
  EXPECT_EQ(reread.train.steps, 7);
}

// The effective recipe in a checkpoint of an earlier version names all of its fields.
TEST(Recipe, IgnoresRetiredFieldsOfEarlierVersion) {
  std::string text = parse({}).text;
  const auto insert = [&](const std::string& section, const std::string& after,
                          const std::string& line) {
    const std::size_t at = text.find(after, text.find(section));
    ASSERT_NE(at, std::string::npos) << text;
    text.insert(at + after.size(), line);
  };
  insert("\nmesh:\n", "\nmesh:\n", "  stall_seconds: 10\n");
  insert("\nmemory:\n", "\n  link:\n", "    latency: 0\n");
  insert("\nmemory:\n", "\n  disk:\n", "    io: auto\n");
  EXPECT_EQ(parse_recipe(text, "manifest", {}).text, parse({}).text);
  text.replace(text.find("stall_seconds: 10"), 17, "stall_seconds: 30");
  const ErrorText error = refusal(text);
  EXPECT_NE(error.where.find("recipe.yaml:"), std::string::npos);
  EXPECT_NE(error.fix.find("mesh.stall_fatal_seconds"), std::string::npos);
}

TEST(Recipe, LearningRateWarmsUpToPeakAndFallsToFinalFraction) {
  const LearningRateSchedule schedule = parse({"train.final_fraction=0.25"}).learning_rate();
  EXPECT_DOUBLE_EQ(schedule.at(0), 1e-3 / 40);
  EXPECT_DOUBLE_EQ(schedule.at(39), 1e-3);
  EXPECT_NEAR(schedule.at(399), 0.25e-3, 1e-12);
}

TEST(Recipe, DividesCoresUnlessThreadsAreSet) {
  EXPECT_EQ(parse({"mesh.threads=3"}).threads_per_rank(), 3);
  EXPECT_GE(parse({"mesh.pp=8"}).threads_per_rank(), 1);
}

TEST(Recipe, RefusesMicroBatchLargerThanMiniBatchAtItsPlace) {
  const ErrorText error = refusal("data: {train: a}\ntrain: {mini_batch: 4,\n  micro_batch: 8}");
  EXPECT_EQ(error.operation, "run.recipe");
  EXPECT_EQ(error.where, "recipe.yaml:3:16");
  EXPECT_EQ(error.expected, "at most 4");
  EXPECT_EQ(error.got, "8");
  EXPECT_EQ(error.fix, "set train.micro_batch=4");
}

TEST(Recipe, RefusesSmallestTrustRatioAboveLargest) {
  const ErrorText error = refusal_of("train.optimizer.min_coeff=20");
  EXPECT_EQ(error.expected, "at most 10");
  EXPECT_EQ(error.fix, "set train.optimizer.min_coeff=10");
}

TEST(Recipe, RefusesContradictionOfDefaultWithNameOfRecipe) {
  const ErrorText error = refusal("data: {train: a}\ntrain: {mini_batch: 2}");
  EXPECT_EQ(error.where, "recipe.yaml");
  EXPECT_EQ(error.got, "4");
}

TEST(Recipe, RefusesHeadsThatDoNotDivideWidth) {
  const ErrorText error = refusal_of("model.heads=5");
  EXPECT_EQ(error.where, "--set");
  EXPECT_EQ(error.expected, "a divisor of 384");
}

TEST(Recipe, RefusesContradictoryFieldsOfLlamaAtTheirPlace) {
  const ErrorText error =
      refusal("data: {train: a}\nmodel: {kind: llama, heads: 6,\n  kv_heads: 4}");
  EXPECT_EQ(error.where, "recipe.yaml:3:13");
  EXPECT_EQ(error.what.substr(0, 16), "model.kv_heads: ");
  EXPECT_EQ(error.expected, "a divisor of 6");
}

TEST(Recipe, RefusesMoreStagesThanLayersAndNamesLimit) {
  EXPECT_EQ(parse({"mesh.pp=8"}).mesh.axes[Axis::kPipeline], 8);  // six blocks, embedding and head
  EXPECT_EQ(refusal_of("mesh.pp=9").fix, "set mesh.pp=8");
  EXPECT_EQ(refusal(kRecipe, {"mesh.schedule=interleaved", "mesh.virtual_stages=5"}).fix,
            "set mesh.pp=1");
  EXPECT_EQ(refusal(kRecipe, {"mesh.schedule=interleaved", "mesh.virtual_stages=9"}).fix,
            "set mesh.virtual_stages=1");
}

TEST(Recipe, RefusesVirtualStagesOfOtherSchedules) {
  EXPECT_EQ(refusal_of("mesh.virtual_stages=2").got, "1f1b");
  EXPECT_EQ(parse({"mesh.virtual_stages=2", "mesh.schedule=interleaved"}).mesh.virtual_stages, 2);
  EXPECT_EQ(parse({"mesh.virtual_stages=2", "mesh.schedule=gpipe"}).mesh.virtual_stages, 2);
}

TEST(Recipe, RefusesTensorRanksThatDoNotDivideHeads) {
  const ErrorText error = refusal_of("mesh.tp=4");
  EXPECT_EQ(error.where, "--set");
  EXPECT_NE((error.what + error.expected).find("heads"), std::string::npos) << error.what;
  EXPECT_EQ(parse({"mesh.tp=3"}).mesh.axes[Axis::kTensor], 3);
}

TEST(Recipe, RefusesVocabularyTooSmallForBytes) {
  EXPECT_EQ(refusal_of("model.vocab=255").fix, "set model.vocab=256");
  EXPECT_EQ(text_task(parse({"model.vocab=255", "data.tokenizer=none"}))->model_options().vocab,
            255);
}

TEST(Recipe, RefusesMissingTrainingData) {
  const ErrorText error = refusal("");
  EXPECT_EQ(error.where, "recipe.yaml");
  EXPECT_NE(error.what.find("data.train"), std::string::npos);
}

TEST(Recipe, RefusesCheckpointsWithoutFolder) {
  EXPECT_NE(refusal_of("train.checkpoint_every=5").fix.find("train.checkpoint_folder"),
            std::string::npos);
}

TEST(Recipe, RefusesZeroSteps) { EXPECT_EQ(refusal_of("train.steps=0").got, "0"); }

TEST(Recipe, RefusesUnknownFieldWithPlaceAndNearestName) {
  const ErrorText error = refusal("data: {train: a}\ntrain:\n  step: 5\n");
  EXPECT_EQ(error.where, "recipe.yaml:3:3");
  EXPECT_NE(error.fix.find("train.steps"), std::string::npos);
}

TEST(Recipe, RefusesUnreadableFile) {
  for (const std::string& path : {std::string("/nonexistent/recipe.yaml"), testing::TempDir()}) {
    try {
      load_recipe(path, {});
      ADD_FAILURE() << path;
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, path);
    }
  }
}

TEST(Recipe, RecipesOfRepositoryAreLegal) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    try {
      load_recipe(entry.path(), {});
    } catch (const UserError& error) {
      // A script exports the model first; all fields have been read by then.
      const std::string& where = error.text().where;
      EXPECT_TRUE(where.starts_with("data/") && where.ends_with(".pt2")) << where;
    }
    ++recipes;
  }
  EXPECT_GT(recipes, 0);
}

TEST(Recipe, RefusesUnknownModelKindAtItsPlace) {
  for (const auto& [text, overrides, where] :
       {std::tuple("model:\n  kind: dlmr\n", std::vector<std::string>{}, "r.yaml:2:9"),
        std::tuple("model: {kind: gpt}", std::vector<std::string>{"model.kind=dlmr"}, "--set")}) {
    try {
      parse_recipe(text, "r.yaml", overrides);
      ADD_FAILURE() << "accepted";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, where);
      EXPECT_EQ(error.text().expected, "gpt, llama, dlrm, dcn, deep_wide");
      EXPECT_EQ(error.text().fix, "did you mean 'dlrm'?");
    }
  }
}

constexpr const char* kClicks = R"(
model: {kind: dlrm, bottom: [16]}
data:  {format: synthetic, synthetic: {samples: 100, numeric: 2, features: [{name: user, cardinality: 10}]}}
)";

// The lines of a field in a table of options, without its sentence.
std::vector<std::string> lines_of(const std::string& field) {
  std::istringstream table(recipe_options_table());
  std::vector<std::string> lines;
  std::string line, path, value;
  while (std::getline(table, line))
    if (std::istringstream(line) >> path >> value && path == field) lines.push_back(value);
  return lines;
}

TEST(Recipe, OptimizerDefaultsDependOnTask) {
  const Recipe text = parse_recipe("data: {train: a}", "text.yaml", {});
  const Recipe clicks = parse_recipe(kClicks, "clicks.yaml", {});
  EXPECT_EQ(text.optimizer.beta2, 0.95);
  EXPECT_EQ(clicks.optimizer.beta2, 0.999);
  EXPECT_EQ(text.optimizer.weight_decay, 0.1);
  EXPECT_EQ(clicks.optimizer.weight_decay, 0.01);
  EXPECT_EQ(text.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(clicks.optimizer.learning_rate, 3e-3);
  EXPECT_EQ(clicks.optimizer.epsilon, text.optimizer.epsilon);
  // `strata options` lists both defaults, and common fields only once.
  EXPECT_EQ(lines_of("train.optimizer.beta2"), (std::vector<std::string>{"0.95", "0.999"}));
  EXPECT_EQ(lines_of("train.optimizer.weight_decay"), (std::vector<std::string>{"0.1", "0.01"}));
  EXPECT_EQ(lines_of("train.optimizer.beta1"), std::vector<std::string>{"0.9"});
}

TEST(Recipe, SetValuesApplyToEveryTask) {
  const std::vector<std::string> given{"train.optimizer.beta2=0.9",
                                       "train.optimizer.weight_decay=0"};
  for (const char* text : {kClicks, "data: {train: a}"}) {
    const Recipe recipe = parse_recipe(text, "recipe.yaml", given);
    EXPECT_EQ(recipe.optimizer.beta2, 0.9);
    EXPECT_EQ(recipe.optimizer.weight_decay, 0);
  }
}

TEST(Recipe, ReadsStoredOptimizerWithUnknownFields) {
  const Recipe before = parse_recipe(kClicks, "clicks.yaml", {"train.optimizer.beta2=0.95"});
  EXPECT_EQ(stored_optimizer(before.text).beta2, 0.95);
  EXPECT_EQ(stored_optimizer(before.text).weight_decay, 0.01);
  EXPECT_EQ(stored_optimizer("train: {lost: 1, optimizer: {beta2: 0.5, forgotten: 2}}").beta2, 0.5);
  const auto resumed = [&](Recipe& defaults, Task&) {
    defaults.optimizer = stored_optimizer(before.text);
  };
  EXPECT_EQ(parse_recipe(kClicks, "clicks.yaml", {}, resumed).optimizer.beta2, 0.95);
  EXPECT_EQ(
      parse_recipe(kClicks, "clicks.yaml", {"train.optimizer.beta2=0.8"}, resumed).optimizer.beta2,
      0.8);
}

TEST(Recipe, TaskIsNamedOrFollowsModelKind) {
  EXPECT_EQ(parse().task->title(), "GPT");
  EXPECT_EQ(parse({"task=text"}).text, parse().text);
  EXPECT_EQ(parse_recipe(kClicks, "clicks.yaml", {"task=recommender"}).task->title(), "DLRM");
  EXPECT_NE(parse().text.find("task: text"), std::string::npos);
  const ErrorText other = refusal_of("task=images");
  EXPECT_EQ(other.where, "--set");
  EXPECT_TRUE(other.expected.starts_with("text, recommender")) << other.expected;
  EXPECT_EQ(refusal_of("task=recommender").where, "recipe.yaml:2:16") << "model.kind gpt is none";
}

TEST(Recipe, RefusalNamesTaskThatHasField) {
  EXPECT_NE(refusal_of("data.numeric=[a]").what.find("task recommender has it"), std::string::npos);
  EXPECT_NE(refusal_of("embedding.staleness=2").what.find("task recommender has it"),
            std::string::npos);
  EXPECT_EQ(refusal_of("data.nothing=2").what, "unknown field 'data.nothing'");
}

TEST(Recipe, ListsFieldsOfOneTask) {
  const std::string text = recipe_options_table("text"),
                    clicks = recipe_options_table("recommender");
  EXPECT_NE(text.find("data.tokenizer"), std::string::npos);
  EXPECT_EQ(text.find("embedding.staleness"), std::string::npos);
  EXPECT_NE(clicks.find("embedding.staleness"), std::string::npos);
  EXPECT_NE(clicks.find("train.steps"), std::string::npos);
  EXPECT_EQ(clicks.find("data.tokenizer"), std::string::npos);
  EXPECT_THROW(recipe_options_table("images"), UserError);
}

// A field that disappears or is renamed breaks users' recipes: this must not happen unnoticed.
TEST(Recipe, FieldsEqualGoldenFile) {
  std::ostringstream golden;
  golden << std::ifstream(STRATA_SOURCE_DIR "/tests/golden/options.txt").rdbuf();
  std::istringstream table(recipe_options_table());
  std::string paths, line;
  while (std::getline(table, line)) {
    if (line.starts_with("Fields of task linear")) break;  // registered by own_task_test.cpp
    const std::string path = line.substr(0, line.find(' '));
    if (path == "task" || path.find('.') != std::string::npos)
      paths += path + "\n";  // the others are headings
  }
  EXPECT_EQ(paths, golden.str()) << "write the new list to tests/golden/options.txt";
}

}  // namespace
}  // namespace strata
