// PCRE2 reads only UTF-8, but text may hold any bytes. Each run of valid UTF-8 is matched
// separately, and every other byte is a part of its own.
#include "strata/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "strata/base/errors.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what, int error) {
  char message[256] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
  throw UserError({.operation = "tokenizer.open",
                   .where = where,
                   .what = what,
                   .expected = "an expression that PCRE2 understands",
                   .got = message,
                   .fix = "write a token file with the tokenizer's own library and set "
                          "data.tokenizer=none"});
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct Pattern::Code {
  explicit Code(pcre2_code* code) : value(code) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(value); }
  pcre2_code* value;
};

Pattern::Pattern(const std::string& text, Kind kind, std::string where) : where_(std::move(where)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::uint32_t options =
      PCRE2_UTF | (kind == Kind::kLiteral ? std::uint32_t{PCRE2_LITERAL} : PCRE2_UCP);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    refuse(where_, "the pattern cannot be read at character " + std::to_string(offset), error);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, matching is slower
  code_ = std::make_shared<const Code>(code);
}

void Pattern::split(std::string_view text,
                    const std::function<void(std::string_view, bool)>& part) const {
  for_each_run(text, [&](std::string_view run, bool utf8) {
    if (utf8) return split_utf8(run, part);
    part(run, false);
  });
}

void Pattern::split_utf8(std::string_view text,
                         const std::function<void(std::string_view, bool)>& part) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code_->value, nullptr));
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  std::size_t done = 0, from = 0;
  while (from < text.size()) {
    const int result = pcre2_match(code_->value, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) refuse(where_, "the pattern cannot be matched", result);
    const std::size_t begin = found[0], end = found[1];
    if (end <= begin) {  // an empty match cuts nothing
      from = begin + std::max<std::size_t>(character_bytes(text.substr(begin)), 1);
      continue;
    }
    if (begin > done) part(text.substr(done, begin - done), false);
    part(text.substr(begin, end - begin), true);
    done = from = end;
  }
  if (done < text.size()) part(text.substr(done), false);
}

std::string Pattern::replace(std::string_view text, std::string_view by) const {
  std::string result;
  result.reserve(text.size());
  split(text, [&](std::string_view part, bool matches) { result += matches ? by : part; });
  return result;
}

std::string type_of(const JsonPart& component) { return component.text("type", ""); }

std::vector<JsonPart> steps_of(const JsonPart& component, const std::string& key) {
  if (component.is_null()) return {};
  if (type_of(component) != "Sequence") return {component};
  std::vector<JsonPart> all;
  for (const JsonPart& part : component.member(key).elements())
    for (const JsonPart& step : steps_of(part, key)) all.push_back(step);
  return all;
}

Pattern pattern_of(const JsonPart& value) {
  const JsonPart literal = value.member("String"), regex = value.member("Regex");
  const std::string where = value.file() + ": " + value.place();
  if (!literal.is_null()) return {literal.text(), Pattern::Kind::kLiteral, where};
  return {regex.text(), Pattern::Kind::kRegex, where};
}

}  // namespace strata
