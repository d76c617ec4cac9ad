#include "strata/jinja/template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "strata/jinja/globals.h"
#include "strata/jinja/json.h"
#include "strata/jinja/parser.h"

namespace strata {

JinjaTemplate::JinjaTemplate(std::shared_ptr<const JinjaBody> body, std::string name)
    : body_(std::move(body)), name_(std::move(name)) {}

JinjaTemplate JinjaTemplate::parse(std::string_view text, const std::string& name) {
  return {std::make_shared<const JinjaBody>(parse_jinja(jinja_tokens(text, name), name)), name};
}

std::string JinjaTemplate::render(const nlohmann::ordered_json& variables, std::time_t now) const {
  JinjaMeter meter;
  const auto globals = std::make_shared<JinjaScope>();
  globals->names = jinja_globals(now);
  JinjaFrame frame = JinjaFrame{.scope = globals, .name = name_, .meter = meter}.inside();
  return at_place(frame, {}, [&] {
    for (const auto& [name, value] : variables.items()) frame.scope->names[name] = value_of(value);
    std::string text;
    body_->run(frame, text);
    return text;
  });
}

}  // namespace strata
