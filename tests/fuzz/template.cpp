// Renders an input as a chat template.
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "strata/jinja/template.h"

void fuzz_input(std::string_view input) {
  static const nlohmann::ordered_json variables = {
      {"messages",
       {{{"role", "system"}, {"content", "Be brief."}},
        {{"role", "user"}, {"content", "Hello \xC3\xA9"}},
        {{"role", "assistant"}, {"content", nullptr}}}},
      {"tools",
       {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"a", 1.5}}}}}}}},
      {"bos_token", "<s>"},
      {"add_generation_prompt", true}};
  strata::fuzz::accepted(
      [&] { strata::JinjaTemplate::parse(input, "fuzz").render(variables, 1'700'000'000); });
}
