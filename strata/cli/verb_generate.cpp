#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "strata/cli/arguments.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/verbs.h"
#include "strata/cli/weights_option.h"
#include "strata/jinja/chat_template.h"
#include "strata/serve/text_generation.h"

namespace strata {
namespace {

struct Conversation {
  std::string system;
  std::vector<std::string> questions;  // each begins a conversation of its own
};

// The model's answers to each question, in place of texts that continue prompts.
void ask(const Conversation& conversation, const std::string& tokenizer, TextRequest& request) {
  request.prompts.clear();
  request.begins = false;
  for (const std::string& question : conversation.questions) {
    std::vector<ChatMessage> messages;
    if (!conversation.system.empty()) messages.push_back({"system", conversation.system});
    messages.push_back({"user", question});
    request.prompts.push_back(chat_prompt(tokenizer, messages));
  }
}

// Only the process of rank 0 gets text. It prints the text of a single prompt as tokens arrive, and
// that of several prompts at the end, separated by empty lines. It prints the answer to a question
// without the question.
void run_generate(const std::string& checkpoint, TextRequest request, const Conversation& chat,
                  const std::vector<std::string>& overrides, WeightType weights) {
  const ServedModel served = served_model(recipe_of(checkpoint, overrides), checkpoint, weights);
  const bool answers = !chat.questions.empty();
  if (answers) ask(chat, served.tokenizer, request);
  const bool single = request.prompts.size() == 1;
  bool shown = false;
  request.on_text = [&](std::size_t prompt, const std::string& piece) {
    if (single && !shown && !answers) std::cout << request.prompts[prompt];
    shown = true;
    if (single) std::cout << piece << std::flush;
  };
  const std::vector<std::string> texts = generate_text(served, request);
  if (!shown) return;
  if (!single)
    for (std::size_t i = 0; i < texts.size(); ++i)
      std::cout << (answers ? "" : request.prompts[i]) << texts[i]
                << (i + 1 < texts.size() ? "\n\n" : "");
  std::cout << std::endl;
}

}  // namespace

void add_generate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("generate", "continue a prompt with a trained model");
  auto request = std::make_shared<TextRequest>();
  auto chat = std::make_shared<Conversation>();
  auto checkpoint = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  auto weights = std::make_shared<WeightType>(WeightType::kPrecision);
  verb->add_option(
          "checkpoint", *checkpoint,
          "checkpoint, the folder that holds several, a Hugging Face folder or a GGUF file")
      ->required();
  CLI::Option* prompt =
      verb->add_option("--prompt", request->prompts,
                       "text to continue, may be repeated; may be left out if the tokenizer has a "
                       "token of begin")
          ->allow_extra_args(false)
          ->type_name("TEXT");
  CLI::Option* question =
      verb->add_option(
              "--chat", chat->questions,
              "question to a chat model, formatted with the template next to its tokenizer; "
              "may be repeated")
          ->allow_extra_args(false)
          ->excludes(prompt)
          ->type_name("QUESTION");
  verb->add_option("--system", chat->system, "instruction that comes before the question of --chat")
      ->needs(question)
      ->type_name("INSTRUCTION");
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
  add_weights_option(*verb, *weights);
  verb->add_option("--set", *overrides, "override a field of the recipe")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb->callback([=] { run_generate(*checkpoint, *request, *chat, *overrides, *weights); });
}

}  // namespace strata
