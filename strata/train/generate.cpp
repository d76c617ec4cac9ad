#include "strata/train/generate.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/thread_ranks.h"
#include "strata/models/model.h"
#include "strata/tokenizer/tokenizer.h"
#include "strata/train/checkpoint.h"
#include "strata/train/loading.h"
#include "strata/train/saving.h"

namespace strata {
namespace {

// Draws from softmax(logits / temperature); the likeliest at temperature 0.
std::int64_t draw(const at::Tensor& logits, double temperature, double uniform) {
  const float* z = logits.const_data_ptr<float>();
  const std::int64_t count = logits.numel();
  const float top = *std::max_element(z, z + count);
  if (temperature == 0) return std::max_element(z, z + count) - z;
  std::vector<double> weights(count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += weights[i] = std::exp((z[i] - top) / temperature);
  double left = uniform * sum;
  for (std::int64_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return i;
  return count - 1;
}

// Layers shared evenly among the ranks.
Partition even_partition(int layers, int stages) {
  Partition partition;
  for (int stage = 0; stage <= stages; ++stage) partition.bounds.push_back(layers * stage / stages);
  return partition;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Recipe& recipe) {
  const std::string& name = recipe.data.tokenizer;
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& got) {
    throw UserError({.operation = "train.generate",
                     .where = "data.tokenizer",
                     .what = what,
                     .expected = expected,
                     .got = got,
                     .fix = "pass --set data.tokenizer=PATH, the tokenizer of the training text"});
  };
  if (name == "none") refuse("tokens have no text", "a tokenizer", "none");
  auto tokenizer = make_tokenizer(name);
  if (tokenizer->vocabulary() > recipe.model.vocab) {
    refuse("the tokenizer has more tokens than the model",
           "at most " + std::to_string(recipe.model.vocab),
           std::to_string(tokenizer->vocabulary()));
  }
  return tokenizer;
}

std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int64_t> tokens = tokenizer.prefix();
  const std::vector<std::int64_t> text = tokenizer.encode(prompt);
  tokens.insert(tokens.end(), text.begin(), text.end());
  if (tokens.empty() && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
  if (!tokens.empty()) return tokens;
  throw UserError({.operation = "train.generate",
                   .where = "--prompt",
                   .what = "nothing to continue",
                   .expected = "at least one token: this tokenizer has none that begins a text",
                   .got = "an empty prompt",
                   .fix = "pass --prompt \"In the beginning\""});
}

// The text of tokens that come one after another, behind that of the prompt.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, const GenerateRequest& request)
      : tokenizer_(tokenizer), request_(request) {}

  void write(const std::vector<std::int64_t>& tokens, std::size_t prompt_length) {
    const std::span<const std::int64_t> all(tokens);
    const std::size_t begin = tokenizer_.decode(all.first(prompt_length)).size() + text_.size();
    const std::string piece = tokenizer_.decode(all).substr(begin);
    text_ += piece;
    if (request_.on_text) request_.on_text(piece);
  }
  const std::string& text() const { return text_; }

 private:
  const Tokenizer& tokenizer_;
  const GenerateRequest& request_;
  std::string text_;
};

// The next token, on every rank.
std::int64_t next_token(Trainer& trainer, Group& group, const std::vector<std::int64_t>& tokens,
                        std::int64_t context, const GenerateRequest& request,
                        std::uint32_t position) {
  const auto length = static_cast<std::ptrdiff_t>(std::min<std::size_t>(tokens.size(), context));
  const std::vector<std::int64_t> recent(tokens.end() - length, tokens.end());
  const at::Tensor logits = trainer.forward(
      {.inputs = {at::tensor(recent).unsqueeze(0)}, .samples = 1, .valid_tokens = length});
  // The rank that has logits draws; adding zeros tells the others.
  double next[] = {0};
  if (logits.defined()) {
    const PhiloxBlock block = philox(
        {position, 0, 0, 2},
        {static_cast<std::uint32_t>(request.seed), static_cast<std::uint32_t>(request.seed >> 32)});
    next[0] = static_cast<double>(draw(logits, request.temperature, (block[0] + 0.5) * 0x1p-32));
  }
  group.all_reduce(next);
  return static_cast<std::int64_t>(next[0]);
}

}  // namespace

Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides) {
  const bool pretrained = is_pretrained(path);
  const CheckpointReader folder =
      pretrained ? CheckpointReader::open_pretrained(path) : CheckpointReader::open(path);
  std::vector<std::string> fields;
  if (pretrained) fields.push_back("data.train=" + path);  // every recipe names a text
  if (pretrained || std::filesystem::exists(folder.folder() + "/tokenizer.json"))
    fields.push_back("data.tokenizer=" + folder.folder());
  fields.insert(fields.end(), overrides.begin(), overrides.end());
  if (pretrained) return parse_recipe("{}", path, fields, {.model = model_options_of(path)});
  return parse_recipe(folder.manifest().recipe, path, fields);
}

std::string generate(const Recipe& recipe, const GenerateRequest& request) {
  const auto tokenizer = tokenizer_of(recipe);
  const std::vector<std::int64_t> prompt = prompt_tokens(*tokenizer, request.prompt);
  const Sequence model = make_model(recipe.model, GptOutput::kLogits);
  const TrainerOptions options{
      .partition = even_partition(model.num_layers(), static_cast<int>(recipe.mesh.pp)),
      .optimizer = recipe.optimizer};
  Writer writer(*tokenizer, request);
  run_thread_ranks(
      {.ranks = static_cast<int>(recipe.mesh.pp), .threads_per_rank = recipe.threads_per_rank()},
      [&](Group& group, MemoryAccount&) {
        Trainer trainer(model, options, group);
        load_weights(trainer, request.checkpoint);
        std::vector<std::int64_t> tokens = prompt;
        for (std::int64_t i = 0; i < request.tokens; ++i) {
          tokens.push_back(next_token(trainer, group, tokens, recipe.model.context, request,
                                      static_cast<std::uint32_t>(i)));
          if (tokens.back() == tokenizer->eos() || tokens.back() == tokenizer->bos()) break;
          if (group.rank() == 0) writer.write(tokens, prompt.size());
        }
      });
  return writer.text();
}

}  // namespace strata
