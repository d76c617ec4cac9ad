#include "strata/cli/serving_arguments.h"

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/weights_option.h"

namespace strata {
namespace {

constexpr std::int64_t kDraftGuesses = 4;  // unless --guesses says

}  // namespace

std::vector<CLI::Option*> ServingArguments::add_to(CLI::App& verb) {
  std::vector<CLI::Option*> options;
  const auto add = [&](const char* name, const char* what, auto& target, const char* help) {
    return options.emplace_back(verb.add_option(name, target, help)->type_name(what));
  };
  add("--cache", "BYTES", cache,
      "memory for keys and values, on each rank; default: 1GiB, or half of a smaller "
      "memory.device");
  add("--cache-host", "BYTES", host_cache,
      "host memory for keys and values that no answer needs now, on each rank")
      ->capture_default_str();
  add("--cache-disk", "BYTES", disk_cache,
      "room for them on the disk that memory.disk.path names, once --cache-host is full")
      ->capture_default_str();
  add("--context", "TOKENS", service.context,
      "of the longest prompt with its answer; default: the context of the model, or of --draft if "
      "that is less, or what --cache has room for")
      ->check(at_least(1));
  add("--sequences", "COUNT", service.sequences, "answers that run at once, at most")
      ->check(at_least(1))
      ->capture_default_str();
  add("--pass-tokens", "COUNT", service.pass_tokens, "tokens of a pass, at most")
      ->check(at_least(1))
      ->capture_default_str();
  options.push_back(add_weights_option(verb, weights));
  add("--guesses", "COUNT", guesses,
      "tokens that a pass guesses of each answer and checks; the answers stay the same; default: "
      "0, or 4 with --draft")
      ->check(between(0, 16));
  CLI::Option* of_draft = add("--draft", "PATH", draft,
                              "a model with the same tokens, smaller or with fewer bits "
                              "(--draft-weights), which guesses "
                              "them; without it, repeated text does")
                              ->check(refuse_empty_path);
  options.push_back(add_weights_option(verb, draft_weights, "--draft-weights", " of --draft"));
  options.back()->needs(of_draft);
  return options;
}

std::string ServingArguments::guess_options() const {
  std::string text = draft.empty() ? "" : " --draft " + draft;
  text += weights_ending(" --draft-weights ", draft_weights);
  return text + (guesses ? " --guesses " + std::to_string(*guesses) : "");
}

ServiceOptions ServingArguments::options(const ServedModel& served) const {
  ServiceOptions options = service;
  if (cache) options.cache_bytes = parse_bytes(*cache).count;
  options.host_cache_bytes = parse_bytes(host_cache).count;
  options.disk_cache_bytes = parse_bytes(disk_cache).count;
  if (!draft.empty()) options.draft = draft_model(draft, served, draft_weights);
  options.guesses = guesses.value_or(options.draft ? kDraftGuesses : 0);
  if (options.draft && options.guesses == 0)
    throw UserError({.operation = "cli.serve",
                     .where = "--guesses",
                     .what = "the draft model has nothing to guess",
                     .expected = "1 to 16",
                     .got = "0",
                     .fix = "pass --guesses 4, or leave out --draft"});
  return options;
}

}  // namespace strata
