#include "strata/tokenizer/normalize.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "strata/tokenizer/utf8.h"

namespace strata {
namespace {

TextStep unicode_form(utf8proc_option_t options) {
  return [options](std::string_view text) {
    std::string result;
    for_each_run(text, [&](std::string_view run, bool utf8) {
      utf8proc_uint8_t* form = nullptr;
      utf8proc_ssize_t size = -1;
      if (utf8) {
        size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()),
                            static_cast<utf8proc_ssize_t>(run.size()), &form, options);
      }
      const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(form, std::free);
      if (size >= 0) run = {reinterpret_cast<const char*>(form), static_cast<std::size_t>(size)};
      result += run;
    });
    return result;
  };
}

TextStep read_step(const JsonPart& step) {
  const std::string type = type_of(step);
  if (type == "Prepend") {
    return [front = step.member("prepend").text()](std::string_view text) {
      return text.empty() ? std::string() : front + std::string(text);
    };
  }
  if (type == "Replace") {
    return [pattern = pattern_of(step.member("pattern")), content = step.member("content").text()](
               std::string_view text) { return pattern.replace(text, content); };
  }
  if (type == "NFC")
    return unicode_form(static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (type == "NFKC") {
    return unicode_form(
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  }
  step.refuse("Sequence, Prepend, Replace, NFC or NFKC", type);
}

}  // namespace

std::vector<TextStep> read_normalizer(const JsonPart& normalizer) {
  std::vector<TextStep> steps;
  for (const JsonPart& step : steps_of(normalizer, "normalizers")) steps.push_back(read_step(step));
  return steps;
}

}  // namespace strata
