#include "strata/task/text/text_task.h"

#include <algorithm>

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/option_changes.h"
#include "strata/checkpoint/reader.h"
#include "strata/models/model.h"
#include "strata/task/countable_sizes.h"
#include "strata/task/mean_loss_run.h"
#include "strata/task/text/text_data.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

std::unique_ptr<Task> make_text_task() { return std::make_unique<TextTask>(); }

constexpr ErrorSource kTextErrors{"task.text"};

// Inside layers, tensors are wider than the model: four times its width, heads, logits.
void check_sizes(const DecoderOptions& model, std::int64_t micro_batch) {
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double heads = number(std::max(model.heads, model.kv_heads));
  const double inside = std::max({4 * number(model.width), number(model.mlp_width),
                                  3 * heads * number(std::max<std::int64_t>(1, model.head_width)),
                                  number(model.vocab)});
  check_elements(inside * std::max(number(model.width), 1.0), "model",
                 "a weight has more elements than can be counted",
                 "set model.width or model.vocab to a smaller number");
  check_elements(number(micro_batch) * number(model.context) * inside, "train.micro_batch",
                 "a micro-batch has more elements than can be counted",
                 "set train.micro_batch or model.context to a smaller number");
}

}  // namespace

TaskKind text_task_kind() {
  return {.name = "text",
          .title = "Fields of task text (model.kind gpt, llama), and of all tasks:",
          .model_kinds = all_names<DecoderKind>(),
          .make = make_text_task};
}

const TextTask* text_task(const Recipe& recipe) {
  return dynamic_cast<const TextTask*>(recipe.task.get());
}

void TextTask::describe(OptionSet& set) {
  strata::describe(set, "model", model_);
  strata::describe(set, "data", data_);
}

void TextTask::check(const Recipe&, const FieldPlace& place) const {
  completed(model_, place);
  if (tokenizer_kind(data_.tokenizer) == TokenizerKind::kBytes && model_.vocab < 256)
    throw kTextErrors.user(place("model.vocab"), "model.vocab: bytes have 256 values",
                           "at least 256", std::to_string(model_.vocab), "set model.vocab=256");
  if (data_.train.empty())
    throw kTextErrors.user(place("data.train"), "data.train: no text to train on",
                           "the path of a file", "nothing", "set data.train to a text file");
}

void TextTask::take_model(const CheckpointReader& checkpoint) {
  const CheckpointModel model = checkpoint.model();
  if (!model.decoder) return;
  model_ = *model.decoder;
  if (const std::string tokenizer = checkpoint.tokenizer(); !tokenizer.empty()) {
    data_.tokenizer = tokenizer;
  } else if (!checkpoint.is_pretrained()) {
    // Older checkpoints store the tokenizer only in their recipe.
    TextTask written;
    written.take_model(checkpoint.manifest().recipe);
    data_.tokenizer = written.data_.tokenizer;
  }
}

void TextTask::take_model(const std::string& recipe) {
  TextTask written;
  OptionSet set;
  written.describe(set);
  for (const OptionChange& change : changed_options(recipe, set.to_yaml()))
    set.set(change.path + "=" + change.before);
  model_ = written.model_;
  data_.tokenizer = written.data_.tokenizer;
}

std::string TextTask::title() const { return model_.kind == DecoderKind::kLlama ? "Llama" : "GPT"; }

Sequential TextTask::model(const Recipe& recipe, TensorSplit split) const {
  check_sizes(model_, recipe.train.micro_batch);
  return make_model(model_, DecoderOutput::kLoss, split, recipe.train.precision,
                    recipe.device_kind());
}

std::vector<TensorSpec> TextTask::batch_inputs(std::int64_t samples) const {
  const TensorSpec tokens{{samples, model_.context}, at::kLong};
  return {tokens, tokens};
}

MeshLimits TextTask::mesh_limits(const Recipe& recipe) const {
  const bool llama = model_.kind == DecoderKind::kLlama;
  return {.mini_batch = recipe.train.mini_batch,
          .layers = num_layers(model_),
          .heads = model_.heads,
          .kv_heads = llama && model_.kv_heads > 0 ? model_.kv_heads : model_.heads,
          .context = model_.context,
          .in_ring = !model_.attention.sparse()};
}

int TextTask::evaluation_shapes(const Recipe& recipe) const {
  if (data_.validation.empty() && data_.validation_fraction <= 0) return 0;
  return validation_shapes(recipe.train);
}

std::unique_ptr<TaskData> TextTask::open(const Recipe& recipe, const std::string&) const {
  return std::make_unique<TextData>(*this, recipe.train);
}

}  // namespace strata
