/// Renders the Jinja templates by which chat models write a conversation as text.
///
///     const JinjaTemplate chat =
///         JinjaTemplate::parse(text, "tokenizer_config.json: chat_template");
///     const std::string prompt =
///         chat.render({{"messages", messages}, {"add_generation_prompt", true}});
///
/// A template has the meaning that `transformers` gives it: Jinja 3.1 in its sandbox, with
/// trim_blocks, lstrip_blocks, loop controls, `generation` blocks, tojson, raise_exception and
/// strftime_now. What Strata does not support is refused by its name, never rendered otherwise.
///
/// Limits   200 levels of nesting; 2 million steps, 16 MiB of text, lists of 100,000 items
///          (strata/jinja/value.h): a hostile template ends with an error.
/// Threads  const, any thread.
/// Errors   UserError with line and column: a template that is no Jinja, an operation that Python
///          refuses, the template's own raise_exception(), a limit.
/// Differs  A name that an inner scope reads before the scope around it sets it has the value that
///          the caller passed; Jinja takes it for undefined.
/// Source   docs of Jinja 3.1 and of transformers' chat templates; oracle:
///          tests/parity/jinja_test.py.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace strata {

struct JinjaBody;

class JinjaTemplate {
 public:
  /// `name` stands for the template in errors.
  static JinjaTemplate parse(std::string_view text, const std::string& name);

  /// `variables`: an object, the names that the template sees. `now`: the time of strftime_now().
  std::string render(const nlohmann::ordered_json& variables,
                     std::time_t now = std::time(nullptr)) const;

 private:
  JinjaTemplate(std::shared_ptr<const JinjaBody> body, std::string name);
  std::shared_ptr<const JinjaBody> body_;
  std::string name_;
};

}  // namespace strata
