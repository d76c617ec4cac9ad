#include "strata/train/recipe.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <span>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/option_changes.h"
#include "strata/base/units.h"
#include "strata/device/determinism.h"
#include "strata/plan/tier_choice.h"
#include "strata/tokenizer/tokenizer.h"
#include "strata/train/recommender_limits.h"
#include "strata/train/trained_model.h"

namespace strata {
namespace {

constexpr double kMostSteps = 1e12;
constexpr double kMostSamples = 1 << 24;

// A plan has a forward and a backward of every stage and micro-batch in memory, and counts the bytes
// of every layer in each.
constexpr std::int64_t kMostMicroBatches = 1 << 16;
constexpr std::int64_t kMostLayerRuns = 1 << 24;

void describe_training(OptionSet& set, Recipe& recipe) {
  describe(set, "train", recipe.train);
  describe(set, "train.optimizer", recipe.optimizer);
  describe(set, "mesh", recipe.mesh);
  describe(set, "mesh", recipe.device);
  describe(set, "memory", recipe.memory);
}

void describe(OptionSet& set, Recipe& recipe) {
  if (recipe.recommender) {
    describe(set, *recipe.recommender);
  } else {
    describe(set, "model", recipe.model);
    describe(set, "data", recipe.data);
  }
  describe_training(set, recipe);
}

// What a run may learn, and a recipe of it with no field given.
struct Task {
  const char* heading;  // of the table of its fields
  Recipe (*defaults)();
};

Recipe text_defaults() { return {}; }

Recipe recommender_defaults() {
  Recipe recipe;
  recipe.recommender.emplace();
  recipe.optimizer = recommender_optimizer();
  return recipe;
}

constexpr Task kText = {"", text_defaults};
constexpr Task kRecommender = {
    "Of recommenders (model.kind dlrm, dcn, deep_wide): what they have instead of model and data, "
    "and other defaults:",
    recommender_defaults};
constexpr Task kTasks[] = {kText, kRecommender};

struct Given {
  const OptionSet& options;
  const std::string& recipe;  // its name

  // A field that was not given has no place of its own; that of a feature stands where its name does.
  std::string where(const std::string& path) const {
    if (options.is_given(path)) return options.where(path);
    const std::size_t end = path.find("].");
    if (end == std::string::npos) return recipe;
    const std::string name = path.substr(0, end + 2) + "name";
    return name != path && options.is_given(name) ? options.where(name) : recipe;
  }
};

// Refuses unless `holds`, at the place where `path` was given.
void require(bool holds, const Given& given, const std::string& path, const std::string& what,
             const std::string& expected, const std::string& got, const std::string& fix) {
  if (holds) return;
  throw UserError({.operation = "train.recipe",
                   .where = given.where(path),
                   .what = path + ": " + what,
                   .expected = expected,
                   .got = got,
                   .fix = fix});
}

// Longer ones are refused by OptionSet, so no more of a device or a model's file is read.
constexpr std::size_t kLongestRecipe = std::size_t{1} << 21;

std::string beginning_of(std::istream& stream) {
  std::string text(kLongestRecipe + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

std::string text(std::int64_t number) { return std::to_string(number); }

void check_text(const Recipe& r, const Given& given) {
  completed(r.model, [&](const std::string& field) { return given.where(field); });
  require(tokenizer_kind(r.data.tokenizer) != TokenizerKind::kBytes || r.model.vocab >= 256, given,
          "model.vocab", "bytes have 256 values", "at least 256", text(r.model.vocab),
          "set model.vocab=256");
  require(!r.data.train.empty(), given, "data.train", "no text to train on", "the path of a file",
          "nothing", "set data.train to a text file");
}

void check(const Recipe& r, const Given& given) {
  require(r.train.micro_batch <= r.train.mini_batch, given, "train.micro_batch",
          "larger than the mini-batch", "at most " + text(r.train.mini_batch),
          text(r.train.micro_batch), "set train.micro_batch=" + text(r.train.mini_batch));
  const auto where = [&](const std::string& field) {
    return field == "mesh" ? given.recipe : given.where(field);
  };
  // Its layers are made of what its features are, so these come first.
  if (r.recommender) {
    check(*r.recommender, where);
    check_recommender(r, where);
  }
  const MeshLimits limits = mesh_limits(r);
  const std::int64_t layers = r.recommender ? limits.layers : r.model.layers;
  const std::int64_t micro_batches =
      (r.train.mini_batch + r.train.micro_batch - 1) / r.train.micro_batch;
  const std::int64_t most = std::clamp<std::int64_t>(kMostLayerRuns / layers, 1, kMostMicroBatches);
  require(micro_batches <= most, given, "train.micro_batch", "too many micro-batches to plan",
          "at most " + text(most) + " of " + text(layers) + " layers", text(micro_batches),
          "set train.micro_batch to " + text((r.train.mini_batch + most - 1) / most) + " or more");
  require(r.train.checkpoint_every == 0 || !r.train.checkpoint_folder.empty(), given,
          "train.checkpoint_every", "nowhere to save to", "a folder in train.checkpoint_folder",
          "none", "set train.checkpoint_folder");
  if (!r.recommender) check_text(r, given);
  if (r.mesh.automatic) {  // its axes say how many ranks there are
    check_mesh({.pp = r.mesh.pp, .dp = r.mesh.dp, .tp = r.mesh.tp}, {}, where);
  } else {
    check_mesh(r.mesh, limits, where);
  }
  check_memory(r.memory, r.mesh, where);
}

}  // namespace

void describe(OptionSet& set, const std::string& prefix, TrainOptions& options) {
  set.add(prefix + ".steps", &options.steps,
          {.help = "Optimizer updates.", .unit = "steps", .minimum = 1, .maximum = kMostSteps});
  set.add(
      prefix + ".mini_batch", &options.mini_batch,
      {.help = "Samples of one update.", .unit = "samples", .minimum = 1, .maximum = kMostSamples});
  set.add(prefix + ".micro_batch", &options.micro_batch,
          {.help = "Samples that go through the pipeline at once; the last one may be smaller.",
           .unit = "samples",
           .minimum = 1,
           .maximum = kMostSamples});
  set.add(prefix + ".warmup", &options.warmup,
          {.help = "Steps over which the learning rate rises.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".decay", &options.decay,
          named({Decay::kCosine, Decay::kLinear, Decay::kConstant}),
          {.help = "How the learning rate falls."});
  set.add(prefix + ".final_fraction", &options.final_fraction,
          {.help = "Learning rate of the last step, as a fraction of the peak.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".clip", &options.clip,
          {.help = "Largest global gradient norm; 0: no clipping.", .minimum = 0});
  set.add(prefix + ".label_smoothing", &options.label_smoothing,
          {.help = "Fraction of each training target that is spread over the whole vocabulary.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".precision", &options.precision,
          {{"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}},
          {.help = "Of weights and activations; 16 bit keeps fp32 weights for the optimizer, adds "
                   "gradients in fp32, and fp16 scales the loss."});
  set.add(prefix + ".seed", &options.seed,
          {.help = "Of first values, dropout and the order of samples.", .minimum = 0});
  set.add(
      prefix + ".deterministic", &options.deterministic,
      {.help = "A GPU computes the same bits again: deterministic kernels and workspaces of fixed "
               "size. A CPU does so anyway."});
  set.add(prefix + ".validate_every", &options.validate_every,
          {.help = "Steps between validations; 0: only at the end.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".validation_samples", &options.validation_samples,
          {.help = "Samples of a validation; 0: all.", .unit = "samples", .minimum = 0});
  set.add(prefix + ".checkpoint_folder", &options.checkpoint_folder,
          {.help = "Where checkpoints go; empty: none are written."});
  set.add(prefix + ".checkpoint_every", &options.checkpoint_every,
          {.help = "Steps between checkpoints; 0: only at the end.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".keep_checkpoints", &options.keep_checkpoints,
          {.help = "Newest checkpoints that are kept; 0: all.", .minimum = 0});
  set.add(prefix + ".tensorboard", &options.tensorboard,
          {.help = "Folder of TensorBoard event files; empty: none are written."});
  set.add(
      prefix + ".graph", &options.graph, named({GraphMode::kAuto, GraphMode::kOn, GraphMode::kOff}),
      {.help = "Whether steps are recorded and replayed (CUDA graphs; on a CPU actions are only "
               "repeated); auto: on GPUs of one rank each; on: refused where a step cannot be."});
  set.add(
      prefix + ".log_lag", &options.log_lag,
      {.help = "Steps that may run before the loss of one is read; 1: a GPU never waits for the "
               "host.",
       .unit = "steps",
       .minimum = 0,
       .maximum = 1});
}

LearningRateSchedule Recipe::learning_rate() const {
  return {.peak = optimizer.learning_rate,
          .warmup_steps = train.warmup,
          .total_steps = train.steps,
          .decay = train.decay,
          .final_fraction = train.final_fraction};
}

MeshLimits mesh_limits(const Recipe& recipe) {
  if (recipe.recommender) {
    const Sequential model = training_model(recipe);
    return {.mini_batch = recipe.train.mini_batch, .layers = model.num_layers()};
  }
  const DecoderOptions& model = recipe.model;
  const bool llama = model.kind == DecoderKind::kLlama;
  return {.mini_batch = recipe.train.mini_batch,
          .layers = model.layers + 2 + (model.skip ? 1 : 0),
          .heads = model.heads,
          .kv_heads = llama && model.kv_heads > 0 ? model.kv_heads : model.heads,
          .context = model.context};
}

int Recipe::threads_per_rank() const {
  if (mesh.threads > 0) return static_cast<int>(mesh.threads);
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  return static_cast<int>(std::max<std::int64_t>(1, cores / mesh.mesh().size()));
}

Device Recipe::rank_device() const {
  const Device found = Device::parse(name_of(device));
  prepare_device(found.kind, train.deterministic);
  return found;
}

DeviceKind Recipe::device_kind() const {
  if (device == DeviceChoice::kAuto) return Device::parse(name_of(device)).kind;
  return device == DeviceChoice::kCuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

Recipe parse_recipe(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides, const RecipeDefaults& defaults) {
  const Task& task = names_recommender(text, name, overrides) ? kRecommender : kText;
  Recipe recipe = task.defaults();
  if (defaults) defaults(recipe);
  OptionSet set;
  describe(set, recipe);
  set.load_yaml(text, name);
  for (const std::string& assignment : overrides) set.set(assignment);
  if (recipe.recommender && !set.is_given("train.micro_batch"))
    recipe.train.micro_batch = (recipe.train.mini_batch + recipe.mesh.dp - 1) / recipe.mesh.dp;
  check(recipe, {set, name});
  recipe.text = set.to_yaml();
  return recipe;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const RecipeDefaults& defaults) {
  if (path == "-")
    return parse_recipe(beginning_of(std::cin), "standard input", overrides, defaults);
  std::ifstream file(path);
  const std::string text = beginning_of(file);
  if (!file.is_open() || file.bad()) {
    throw UserError({.operation = "train.recipe",
                     .where = path,
                     .what = "the recipe cannot be read",
                     .expected = "a YAML file",
                     .got = "no readable file",
                     .fix = "name an existing recipe, such as recipes/gpt-10m.yaml"});
  }
  return parse_recipe(text, path, overrides, defaults);
}

std::string warmup_advice(const Recipe& recipe) {
  const std::int64_t warmup = recipe.train.warmup, steps = recipe.train.steps;
  if (warmup <= steps) return "";
  const double share = static_cast<double>(steps) / static_cast<double>(warmup);
  return "rises to " + format_double(100 * share, 1) +
         " % of train.optimizer.learning_rate: train.warmup " + text(warmup) +
         " is longer than the run";
}

OptimizerOptions stored_optimizer(const std::string& recipe) {
  OptimizerOptions options;
  OptionSet set;
  describe(set, "train.optimizer", options);
  for (const OptionChange& change : changed_options(recipe, set.to_yaml()))
    set.set(change.path + "=" + change.before);
  return options;
}

std::vector<std::string> recipe_fields() {
  std::vector<std::string> fields;
  for (const Task& task : kTasks) {
    Recipe recipe = task.defaults();
    OptionSet set;
    describe(set, recipe);
    for (std::string& path : set.paths())
      if (std::ranges::find(fields, path) == fields.end()) fields.push_back(std::move(path));
  }
  return fields;
}

std::string recipe_options_table() {
  Recipe first = kTasks[0].defaults();
  OptionSet set, shared;
  describe(set, first);
  describe_training(shared, first);
  std::string table = set.to_table();
  for (const Task& task : std::span(kTasks).subspan(1)) {
    Recipe recipe = task.defaults();
    OptionSet own;
    describe(own, recipe);
    table += std::string("\n") + task.heading + "\n\n" + own.to_table(&shared);
  }
  return table;
}

}  // namespace strata
