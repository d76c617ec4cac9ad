#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "strata/cli/arguments.h"
#include "strata/cli/generation.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

// Of several processes only that of rank 0 is told of text, and shows the prompt in front of it.
void run_generate(TextRequest request, const std::vector<std::string>& overrides) {
  const Recipe recipe = recipe_of(request.checkpoint, overrides);
  bool shown = false;
  request.on_text = [&](const std::string& piece) {
    if (!shown) std::cout << request.prompt;
    shown = true;
    std::cout << piece << std::flush;
  };
  generate_text(recipe, request);
  if (shown) std::cout << std::endl;
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "continue a prompt with a trained model");
  auto request = std::make_shared<TextRequest>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  verb->add_option("checkpoint", request->checkpoint,
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
  verb->callback([request, overrides] { run_generate(*request, *overrides); });
}

}  // namespace strata
