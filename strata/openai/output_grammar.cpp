#include "strata/openai/output_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/json_text.h"
#include "strata/grammar/gbnf.h"
#include "strata/grammar/json_schema.h"
#include "strata/grammar/regex.h"
#include "strata/grammar/schema_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

constexpr ErrorSource kAnswerErrors{"openai.grammar", "use a grammar that the tokens can spell"};

using Bits = std::vector<std::uint64_t>;

// A field with what an answer must match.
struct GrammarField {
  enum class Kind : std::uint8_t { kSchema, kObject, kRegex, kChoice, kGbnf };
  Kind kind;
  std::string place;
  nlohmann::ordered_json value;
};
using Kind = GrammarField::Kind;

// The error of a grammar with the place in it, which clients can see.
ApiError refusal(const std::string& place, const UserError& error) {
  const ErrorText& text = error.text();
  return ApiError({.message = "'" + place +
                              "' cannot be used: " + (text.where.empty() ? "" : text.where + ": ") +
                              text.what + ": expected " + text.expected + ", got " + text.got,
                   .param = place,
                   .code = "invalid_grammar"});
}

class FieldReader {
 public:
  std::optional<GrammarField> read(const RequestFields& fields) {
    read_response_format(fields);
    read_structured_outputs(fields);
    add(fields, "guided_json", Kind::kSchema);
    add(fields, "guided_regex", Kind::kRegex);
    add(fields, "guided_choice", Kind::kChoice);
    add(fields, "guided_grammar", Kind::kGbnf);
    add(fields, "grammar", Kind::kGbnf);
    add(fields, "json_schema", Kind::kSchema);
    refuse_if_set(fields, "guided_whitespace_pattern", "white space has fixed limits");
    return std::move(found_);
  }

 private:
  void add(const RequestFields& fields, const char* field, Kind kind) {
    const nlohmann::json* value = fields.find(field);
    if (value == nullptr) return;
    const std::string place = fields.place(field);
    if (kind == Kind::kObject) {
      if (!fields.flag(field, false)) return;
    } else if (kind == Kind::kSchema) {
      if (!value->is_object() && !value->is_boolean() && !value->is_string())
        refuse_field(place, "a JSON Schema", short_json(*value));
    } else if (kind == Kind::kChoice) {
      if (!value->is_array() || value->empty())
        refuse_field(place, "a list of at least one text", short_json(*value));
      fields.texts(field);
    } else {
      fields.text(field, "");
    }
    set({.kind = kind, .place = place, .value = *value});
    if (kind == Kind::kSchema) found_->value = schema_of(fields, field, place);
  }

  // A schema may be sent as a text.
  static nlohmann::ordered_json schema_of(const RequestFields& fields, const std::string& field,
                                          const std::string& place) {
    try {
      const nlohmann::json& value = *fields.find(field);
      return value.is_string() ? parse_schema(value.get_ref<const std::string&>())
                               : fields.schema(field);
    } catch (const UserError& error) {
      throw refusal(place, error);
    }
  }

  void set(GrammarField field) {
    if (found_)
      throw ApiError(
          {.message = "'" + field.place + "' cannot be used with '" + found_->place + "'",
           .param = field.place,
           .code = "invalid_value"});
    found_ = std::move(field);
  }

  void read_response_format(const RequestFields& fields) {
    if (fields.find("response_format") == nullptr) return;
    const RequestFields format = fields.inner("response_format");
    const std::string type = format.text("type", "");
    if (type == "json_object") {
      set({.kind = Kind::kObject, .place = "response_format", .value = {}});
    } else if (type == "json_schema") {
      if (format.find("json_schema") == nullptr)
        refuse_field("response_format.json_schema", "an object", "nothing");
      const RequestFields schema = format.inner("json_schema");
      if (schema.find("schema") == nullptr)
        refuse_field("response_format.json_schema.schema", "a JSON Schema", "nothing");
      add(schema, "schema", Kind::kSchema);
    } else if (type != "text") {
      refuse_field("response_format.type", "text, json_object or json_schema",
                   type.empty() ? "nothing" : short_json(type));
    }
  }

  void read_structured_outputs(const RequestFields& fields) {
    if (fields.find("structured_outputs") == nullptr) return;
    const RequestFields inner = fields.inner("structured_outputs");
    add(inner, "json", Kind::kSchema);
    add(inner, "regex", Kind::kRegex);
    add(inner, "choice", Kind::kChoice);
    add(inner, "grammar", Kind::kGbnf);
    add(inner, "json_object", Kind::kObject);
    refuse_if_set(inner, "structural_tag", "use json, regex, choice or grammar");
    refuse_if_set(inner, "whitespace_pattern", "white space has fixed limits");
    refuse_if_set(inner, "disable_any_whitespace", "white space has fixed limits");
    refuse_if_set(inner, "disable_additional_properties", "set additionalProperties to false");
  }

  std::optional<GrammarField> found_;
};

Grammar::Expression read(Grammar& grammar, const GrammarField& field) {
  switch (field.kind) {
    case Kind::kSchema:
      return read_json_schema(grammar, field.value);
    case Kind::kObject:
      return json_object(grammar);
    case Kind::kGbnf:
      return read_gbnf(grammar, field.value.get_ref<const std::string&>());
    case Kind::kRegex:
      return read_regex(grammar, field.value.get_ref<const std::string&>());
    default:
      break;
  }
  std::vector<Grammar::Expression> choices;
  for (const auto& text : field.value)
    choices.push_back(grammar.text(text.get_ref<const std::string&>()));
  return grammar.choice(choices);
}

}  // namespace

std::shared_ptr<TokenGrammar> read_output_grammar(const RequestFields& fields,
                                                  const OpenAiModel& model) {
  const std::optional<GrammarField> field = FieldReader().read(fields);
  if (!field) return nullptr;
  const std::string key =
      std::to_string(static_cast<int>(field->kind)) + " " + json_text(field->value);
  try {
    return model.grammars->find(key, *model.tokenizer, model.service->vocabulary(), [&] {
      Grammar grammar;
      return Automaton::compile(grammar, read(grammar, *field));
    });
  } catch (const UserError& error) {
    throw refusal(field->place, error);
  }
}

std::function<Bits(const std::vector<std::int64_t>&)> allowed_by_grammar(
    const AnswerOptions& options, std::vector<std::int64_t> ends) {
  return [grammar = options.grammar, ends = std::move(ends), least = options.min_tokens,
          ignores_ends = options.ignore_ends,
          text = TokenGrammar::Text()](const std::vector<std::int64_t>& answer) mutable {
    AllowedTokens allowed = grammar->allowed(text, answer);
    Bits& bits = allowed.bits;
    for (const std::int64_t end : ends) bits.at(end / 64) &= ~(std::uint64_t{1} << (end % 64));
    const bool continues = std::ranges::any_of(bits, [](std::uint64_t word) { return word != 0; });
    if (!continues && !allowed.may_end)
      throw kAnswerErrors.user("", "no token of the model can continue the answer",
                               "a token that the grammar allows", "none");
    const bool wants_end = !ignores_ends && std::ssize(answer) >= least;
    if (allowed.may_end && (wants_end || !continues))
      for (const std::int64_t end : ends) bits.at(end / 64) |= std::uint64_t{1} << (end % 64);
    return std::move(bits);
  };
}

}  // namespace strata
