#include "strata/cli/generation.h"

#include <algorithm>
#include <thread>

#include "strata/base/errors.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/serve/generate.h"
#include "strata/serve/text_stream.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

std::shared_ptr<const Tokenizer> tokenizer_of(const Recipe& recipe) {
  const std::string& name = recipe.data.tokenizer;
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& got) {
    throw UserError({.operation = "cli.generate",
                     .where = "data.tokenizer",
                     .what = what,
                     .expected = expected,
                     .got = got,
                     .fix = "pass --set data.tokenizer=PATH, the tokenizer of the training text"});
  };
  if (tokenizer_kind(name) == TokenizerKind::kNone)
    refuse("tokens have no text", "a tokenizer", "none");
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
  throw UserError({.operation = "cli.generate",
                   .where = "--prompt",
                   .what = "nothing to continue",
                   .expected = "at least one token: this tokenizer has none that begins a text",
                   .got = "an empty prompt",
                   .fix = "pass --prompt \"In the beginning\""});
}

// What ends a text: a token that begins or ends one.
std::vector<std::int64_t> ends_of(const Tokenizer& tokenizer) {
  std::vector<std::int64_t> ends;
  if (tokenizer.eos()) ends.push_back(*tokenizer.eos());
  if (tokenizer.bos()) ends.push_back(*tokenizer.bos());
  return ends;
}

// One replica decodes: others would only repeat it.
Mesh decoding_mesh(const Recipe& recipe) {
  return {.pp = static_cast<int>(recipe.mesh.pp), .dp = 1, .tp = static_cast<int>(recipe.mesh.tp)};
}

int threads_of(const Recipe& recipe, const Mesh& mesh) {
  if (recipe.mesh.threads > 0) return static_cast<int>(recipe.mesh.threads);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / mesh.size());
}

void load(Decoder& decoder, const DecoderOptions& model, const std::string& checkpoint) {
  std::vector<NamedState> states;
  for (DecoderWeight& weight : decoder.weights())
    states.push_back({.name = std::move(weight.name),
                      .shape = std::move(weight.shape),
                      .local = std::move(weight.local),
                      .runs = std::move(weight.runs),
                      .lease = std::move(weight.lease)});
  load_weights(checkpoint, model, states);
}

}  // namespace

// What the checkpoint itself says of model and tokenizer holds; its recipe adds the mesh. A recipe
// whose options have other names by now isn't needed.
Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  Recipe known;
  if (!checkpoint.is_pretrained()) {
    try {
      known = parse_recipe(checkpoint.manifest().recipe, path, {});
    } catch (const UserError&) {
      known = {};
    }
  }
  known.model = checkpoint.decoder();
  if (const std::string tokenizer = checkpoint.tokenizer(); !tokenizer.empty())
    known.data.tokenizer = tokenizer;
  if (known.data.train.empty()) known.data.train = path;  // every recipe names a text
  return parse_recipe("{}", path, overrides, [&](Recipe& defaults) { defaults = known; });
}

std::string generate_text(const Recipe& recipe, const TextRequest& request) {
  const auto tokenizer = tokenizer_of(recipe);
  const GenerateRequest asked{.prompt = prompt_tokens(*tokenizer, request.prompt),
                              .tokens = request.tokens,
                              .ends = ends_of(*tokenizer),
                              .sampler = TokenSampler(request.temperature, request.seed)};
  const Mesh mesh = decoding_mesh(recipe);
  const Sequential model = make_model(recipe.model, DecoderOutput::kLogits, {.ranks = mesh.tp});
  const std::int64_t positions = std::min(
      recipe.model.context, static_cast<std::int64_t>(asked.prompt.size()) + request.tokens);
  RanksOptions ranks{.ranks = mesh.size(),
                     .threads_per_rank = threads_of(recipe, mesh),
                     .device_bytes = recipe.memory.device.count,
                     .device = recipe.rank_device(),
                     .mesh = mesh,
                     .fingerprint = recipe.text};
  if (request.in_this_process) ranks.rendezvous = Rendezvous{};
  std::string text;
  run_ranks(ranks, [&](Group& group, MemoryAccount&) {
    Decoder decoder(model, mesh, positions, group);
    load(decoder, recipe.model, request.checkpoint);
    TextStream stream(*tokenizer, asked.prompt);
    const auto show = [&](const std::string& piece) {
      text += piece;
      if (request.on_text) request.on_text(piece);
    };
    if (group.rank() == 0) show("");  // from here on there is text
    generate(decoder, group, asked, [&](std::int64_t token) {
      if (group.rank() == 0) show(stream.push(token));
    });
    if (group.rank() == 0) show(stream.finish());
  });
  return text;
}

}  // namespace strata
