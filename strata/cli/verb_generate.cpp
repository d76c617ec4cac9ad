#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

// Only the process of rank 0 gets text. It prints the text of a single prompt as tokens arrive, and
// that of several prompts at the end, separated by empty lines.
void run_generate(const std::string& checkpoint, TextRequest request,
                  const std::vector<std::string>& overrides) {
  const ServedModel served = served_model(recipe_of(checkpoint, overrides), checkpoint);
  const bool single = request.prompts.size() == 1;
  bool shown = false;
  request.on_text = [&](std::size_t prompt, const std::string& piece) {
    if (single && !shown) std::cout << request.prompts[prompt];
    shown = true;
    if (single) std::cout << piece << std::flush;
  };
  const std::vector<std::string> texts = generate_text(served, request);
  if (!shown) return;
  if (!single)
    for (std::size_t i = 0; i < texts.size(); ++i)
      std::cout << request.prompts[i] << texts[i] << (i + 1 < texts.size() ? "\n\n" : "");
  std::cout << std::endl;
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "continue a prompt with a trained model");
  auto request = std::make_shared<TextRequest>();
  auto checkpoint = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  verb->add_option("checkpoint", *checkpoint,
                   "checkpoint, the folder that holds several, or a Hugging Face folder")
      ->required();
  verb->add_option("--prompt", request->prompts,
                   "text to continue, may be repeated; may be left out if the tokenizer has a "
                   "token of begin")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  verb->add_option("--bytes,--tokens", request->tokens, "how many tokens to write, at most")
      ->check(at_least(0))
      ->type_name("COUNT")
      ->capture_default_str();
  verb->add_option("--temperature", request->temperature, "0: always the likeliest token")
      ->check(at_least(0))
      ->type_name("NUMBER")
      ->capture_default_str();
  verb->add_option("--seed", request->seed, "of the draws")
      ->check(seed_number())
      ->type_name("NUMBER")
      ->capture_default_str();
  verb->add_option("--set", *overrides, "override a field of the recipe")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb->callback(
      [checkpoint, request, overrides] { run_generate(*checkpoint, *request, *overrides); });
}

}  // namespace strata
