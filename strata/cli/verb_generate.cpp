#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "strata/cli/verbs.h"
#include "strata/train/generate.h"

namespace strata {
namespace {

void run_generate(GenerateRequest request, const std::vector<std::string>& overrides) {
  const Recipe recipe = recipe_of(request.checkpoint, overrides);
  std::cout << request.prompt << std::flush;
  request.on_text = [](const std::string& piece) { std::cout << piece << std::flush; };
  generate(recipe, request);
  std::cout << '\n';
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "continue a prompt with a trained model");
  auto request = std::make_shared<GenerateRequest>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  verb->add_option("checkpoint", request->checkpoint,
                   "checkpoint, the folder that holds several, or a Hugging Face folder")
      ->required();
  verb->add_option("--prompt", request->prompt,
                   "text to continue; may be left out if the tokenizer has a token of begin");
  verb->add_option("--bytes,--tokens", request->tokens, "how many tokens to write, at most")
      ->capture_default_str();
  verb->add_option("--temperature", request->temperature, "0: always the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--seed", request->seed, "of the draws")->capture_default_str();
  verb->add_option("--set", *overrides, "override a field of the recipe")->allow_extra_args(false);
  verb->callback([request, overrides] { run_generate(*request, *overrides); });
}

}  // namespace strata
