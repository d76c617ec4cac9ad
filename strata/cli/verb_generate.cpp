#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

// The process of rank 0 alone gets text, and shows the prompt before it.
void run_generate(const std::string& checkpoint, TextRequest request,
                  const std::vector<std::string>& overrides) {
  const ServedModel served = served_model(recipe_of(checkpoint, overrides), checkpoint);
  bool shown = false;
  request.on_text = [&](const std::string& piece) {
    if (!shown) std::cout << request.prompt;
    shown = true;
    std::cout << piece << std::flush;
  };
  generate_text(served, request);
  if (shown) std::cout << std::endl;
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
  verb->add_option("--prompt", request->prompt,
                   "text to continue; may be left out if the tokenizer has a token of begin")
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
