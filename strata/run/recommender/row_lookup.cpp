#include "strata/run/recommender/row_lookup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "strata/base/error_source.h"
#include "strata/base/user_text.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/embed/saved_rows.h"
#include "strata/rowserver/rows/row_table_state.h"
#include "strata/rowserver/shard/update_part.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/tabular/preprocessing.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/recommender_task.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr double kAskSeconds = 60;

constexpr ErrorSource kRowErrors{"run.row"};

bool is_recipe(const std::string& where) {
  return where.ends_with(".yaml") || where.ends_with(".yml");
}

bool is_address(const std::string& where) {
  if (where.starts_with("unix:")) return true;
  std::error_code none;
  return !fs::exists(where, none) && where.find(':') != std::string::npos;
}

std::uint64_t number_of(const RowQuestion& question) {
  std::uint64_t id = 0;
  const char* end = question.id.data() + question.id.size();
  const auto [stop, error] = std::from_chars(question.id.data(), end, id);
  if (error == std::errc() && stop == end && !question.id.empty()) return id;
  throw kRowErrors.user("ID", "a row is known by a number", "a whole number from 0 to 2^64 - 1",
                        quote(question.id), "give the number, or --text with what the log says");
}

// The recipe, and the checkpoint that it is in or has written; "": none.
struct RunOfRow {
  Recipe recipe;
  std::string checkpoint;
  const RecommenderFields& fields() const { return *recommender_fields(recipe); }
};

RunOfRow run_of(const RowQuestion& question) {
  RunOfRow run;
  if (is_recipe(question.where)) {
    run.recipe = load_recipe(question.where, question.overrides);
    const std::string& folder = run.recipe.train.checkpoint_folder;
    if (!folder.empty() && !list_checkpoints(folder).empty()) run.checkpoint = folder;
  } else {
    const CheckpointReader checkpoint = CheckpointReader::open(question.where);
    run.recipe = parse_recipe(checkpoint.manifest().recipe, question.where, question.overrides);
    run.checkpoint = question.where;
  }
  if (!recommender_fields(run.recipe))
    throw kRowErrors.user(question.where, "this model has no rows of embeddings", "a recommender",
                          run.recipe.task->title(), "name a recommender's checkpoint or recipe");
  return run;
}

// Searches features and tables, as the user may mean either.
int table_named(const RecommenderFields& fields, const std::string& name) {
  const WorkerOptions worker = worker_options(fields);
  const std::vector<CategoricalOptions> features = complete(fields.data).categorical;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (features[i].name == name) return worker.features[i].table;
    names.push_back(features[i].name);
  }
  for (std::size_t i = 0; i < worker.tables.size(); ++i)
    if (worker.tables[i].name == name) return static_cast<int>(i);
  const std::string nearest = nearest_name(name, names);
  throw kRowErrors.user("FEATURE", "the recipe has no such feature",
                        nearest.empty() ? "one of data.categorical" : quote(nearest), quote(name),
                        "name a categorical feature");
}

std::uint64_t id_of_text(const RunOfRow& run, const RowQuestion& question) {
  const TabularOptions options = complete(run.fields().data);
  std::size_t feature = 0;
  while (feature < options.categorical.size() &&
         options.categorical[feature].name != question.feature)
    ++feature;
  if (feature == options.categorical.size())
    throw kRowErrors.user("FEATURE", "a table has no texts, a feature has", "a categorical feature",
                          quote(question.feature), "name the feature, or leave out --text");
  if (run.checkpoint.empty() && options.categorical[feature].ids != IdSource::kHash &&
      options.categorical[feature].ids != IdSource::kNumber)
    throw kRowErrors.user(
        question.where, "what ids the texts have is in a checkpoint, and there is none",
        "a checkpoint", "a recipe without one", "name the checkpoint, or give the number");
  const std::string state = run.checkpoint.empty() ? "" : saved_preprocessing(run.checkpoint);
  if (state.empty()) {
    return options.categorical[feature].ids == IdSource::kHash
               ? hash_text(question.feature, question.id)
               : number_of(question);
  }
  const auto id = Preprocessing::load_state(options, state)->id_of(feature, question.id);
  if (!id)
    throw kRowErrors.user("ID", "the feature's texts are numbers", "a number", quote(question.id),
                          "give a number that the log could have");
  return *id;
}

RowDescription ask(const std::string& server, const std::string& table, std::uint64_t id) {
  return remote_inspection(server, access_from_environment(), {.seconds = kAskSeconds})
      ->row(table, id);
}

RowDescription saved_row(const RunOfRow& run, int table, std::uint64_t id) {
  const std::vector<FeatureSpec> tables = worker_options(run.fields()).tables;
  const auto seed = static_cast<std::uint64_t>(run.recipe.train.seed);
  const auto state = make_row_table_state(tables, {.seed = seed});
  const std::int64_t version = resume_position(run.recipe, run.checkpoint).steps_done;
  SavedRows(saved_rows_folder(run.fields(), run.checkpoint), fingerprint_of(tables, seed), 0)
      .load_row(version, table, id, *state);
  return state->describe(table, id);
}

}  // namespace

RowDescription find_row(const RowQuestion& question) {
  if (is_address(question.where)) {
    if (question.is_text)
      throw kRowErrors.user("--text", "a server knows rows by number alone",
                            "a recipe or a checkpoint", quote(question.where),
                            "name the recipe that trains, or give the number");
    return ask(question.where, question.feature, number_of(question));
  }
  const RunOfRow run = run_of(question);
  const int table = table_named(run.fields(), question.feature);
  const std::uint64_t id = question.is_text ? id_of_text(run, question) : number_of(question);
  const EmbeddingOptions& embedding = run.fields().embedding;
  if (!embedding.is_local()) {
    const auto servers = static_cast<int>(embedding.servers.size());
    return ask(embedding.servers[static_cast<std::size_t>(shard_of(table, id, servers))],
               worker_options(run.fields()).tables[static_cast<std::size_t>(table)].name, id);
  }
  if (run.checkpoint.empty())
    throw kRowErrors.user(question.where,
                          "the recipe's rows live in the trainer's process, and none are saved",
                          "a checkpoint in train.checkpoint_folder", "none",
                          "train with --set train.checkpoint_folder=FOLDER, then name that");
  return saved_row(run, table, id);
}

}  // namespace strata
