// Renders templates for tests that compare with another implementation
// (tests/parity/jinja_test.py): reads a JSON object a line, {"template": text, "variables": object,
// "now": seconds}, and writes one a line, {"text": ...} or {"error": ...}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "strata/base/errors.h"
#include "strata/jinja/template.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::ordered_json answer;
    try {
      const auto task = nlohmann::ordered_json::parse(line);
      const auto made =
          strata::JinjaTemplate::parse(task["template"].get<std::string>(), "template");
      answer["text"] = made.render(task["variables"], task.value("now", std::time_t{0}));
    } catch (const strata::UserError& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << std::endl;
  }
}
