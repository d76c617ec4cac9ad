#include "strata/jinja/expression_parser.h"

#include <charconv>
#include <memory>

#include "strata/jinja/filters.h"

namespace strata {
namespace {

using Kind = JinjaTokenKind;

JinjaExpressionPtr constant(JinjaPlace place, JinjaValue value) {
  return std::make_unique<JinjaConstant>(place, std::move(value));
}

}  // namespace

JinjaExpressionPtr JinjaExpressionParser::expression(bool choice) {
  const Level level(reader_);
  const JinjaPlace place = reader_.place();
  JinjaExpressionPtr made = disjunction();
  return choice ? choice_of(std::move(made), place) : std::move(made);
}

JinjaExpressionPtr JinjaExpressionParser::choice_of(JinjaExpressionPtr yes, JinjaPlace place) {
  while (reader_.skip_name("if")) {
    JinjaExpressionPtr condition = disjunction();
    JinjaExpressionPtr no = reader_.skip_name("else") ? expression() : nullptr;
    yes = std::make_unique<JinjaChoice>(place, std::move(condition), std::move(yes), std::move(no));
  }
  return yes;
}

bool JinjaExpressionParser::ends_tuple() const {
  return reader_.is(Kind::kBlockEnd) || reader_.is(Kind::kPrintEnd) || reader_.is_operator(")") ||
         reader_.is_name("recursive");
}

JinjaExpressionPtr JinjaExpressionParser::expression_or_tuple(bool choice) {
  const JinjaPlace place = reader_.place();
  std::vector<JinjaExpressionPtr> items;
  bool is_tuple = false;
  do {
    if (!items.empty()) is_tuple = true;
    if (is_tuple && ends_tuple()) break;
    items.push_back(expression(choice));
  } while (reader_.skip_operator(","));
  if (!is_tuple) return std::move(items.front());
  return std::make_unique<JinjaItems>(place, JinjaSequenceKind::kTuple, std::move(items));
}

JinjaExpressionPtr JinjaExpressionParser::disjunction() {
  JinjaExpressionPtr left = conjunction();
  for (JinjaPlace place = reader_.place(); reader_.skip_name("or"); place = reader_.place())
    left = std::make_unique<JinjaBinary>(place, "or", std::move(left), conjunction());
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::conjunction() {
  JinjaExpressionPtr left = negation();
  for (JinjaPlace place = reader_.place(); reader_.skip_name("and"); place = reader_.place())
    left = std::make_unique<JinjaBinary>(place, "and", std::move(left), negation());
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::negation() {
  const Level level(reader_);
  const JinjaPlace place = reader_.place();
  if (reader_.skip_name("not")) return std::make_unique<JinjaUnary>(place, "not", negation());
  return comparison();
}

JinjaExpressionPtr JinjaExpressionParser::comparison() {
  JinjaExpressionPtr first = sum();
  std::unique_ptr<JinjaComparison> made;
  for (;;) {
    const JinjaPlace place = reader_.place();
    std::string operation;
    for (const char* each : {"==", "!=", "<=", ">=", "<", ">"})
      if (operation.empty() && reader_.skip_operator(each)) operation = each;
    if (operation.empty() && reader_.skip_name("in")) operation = "in";
    if (operation.empty() && reader_.is_name("not") && reader_.following().kind == Kind::kName &&
        reader_.following().text == "in") {
      reader_.next(), reader_.next();
      operation = "not in";
    }
    if (operation.empty()) break;
    if (!made) made = std::make_unique<JinjaComparison>(place, std::move(first));
    made->others.emplace_back(operation, sum());
  }
  if (made) return made;
  return first;
}

JinjaExpressionPtr JinjaExpressionParser::sum() {
  JinjaExpressionPtr left = join();
  while (reader_.is_operator("+") || reader_.is_operator("-")) {
    const JinjaToken operation = reader_.next();
    left = std::make_unique<JinjaBinary>(operation.place, operation.text, std::move(left), join());
  }
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::join() {
  JinjaExpressionPtr left = product();
  for (JinjaPlace place = reader_.place(); reader_.skip_operator("~"); place = reader_.place())
    left = std::make_unique<JinjaBinary>(place, "~", std::move(left), product());
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::product() {
  JinjaExpressionPtr left = power();
  while (reader_.is_operator("*") || reader_.is_operator("/") || reader_.is_operator("//") ||
         reader_.is_operator("%")) {
    const JinjaToken operation = reader_.next();
    left = std::make_unique<JinjaBinary>(operation.place, operation.text, std::move(left), power());
  }
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::power() {
  JinjaExpressionPtr left = unary(true);
  for (JinjaPlace place = reader_.place(); reader_.skip_operator("**"); place = reader_.place())
    left = std::make_unique<JinjaBinary>(place, "**", std::move(left), unary(true));
  return left;
}

JinjaExpressionPtr JinjaExpressionParser::unary(bool with_filters) {
  const Level level(reader_);
  const JinjaPlace place = reader_.place();
  JinjaExpressionPtr made;
  if (reader_.skip_operator("-"))
    made = std::make_unique<JinjaUnary>(place, "-", unary(false));
  else if (reader_.skip_operator("+"))
    made = std::make_unique<JinjaUnary>(place, "+", unary(false));
  else
    made = primary();
  made = postfix(std::move(made));
  return with_filters ? filters_and_tests(std::move(made)) : std::move(made);
}

JinjaExpressionPtr JinjaExpressionParser::primary() {
  const JinjaPlace place = reader_.place();
  if (reader_.skip_operator("(")) return parentheses();
  if (reader_.skip_operator("[")) return list();
  if (reader_.skip_operator("{")) return dict();
  if (reader_.is(Kind::kString)) {
    std::string text;
    while (reader_.is(Kind::kString)) text += reader_.next().text;
    return constant(place, text);
  }
  if (reader_.is(Kind::kInteger)) {
    const std::string& digits = reader_.current().text;
    std::int64_t number = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
      reader_.refuse("an int is too large", "at most 64 bits");
    reader_.next();
    return constant(place, number);
  }
  if (reader_.is(Kind::kFloat)) {
    double number = 0;
    const std::string digits = reader_.next().text;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return constant(place, number);
  }
  const std::string name =
      reader_.expect(Kind::kName, "a value: a name, a number, a text, a list or a dict").text;
  if (name == "true" || name == "True") return constant(place, true);
  if (name == "false" || name == "False") return constant(place, false);
  if (name == "none" || name == "None") return constant(place, JinjaValue());
  return std::make_unique<JinjaName>(place, name);
}

JinjaExpressionPtr JinjaExpressionParser::parentheses() {
  const JinjaPlace place = reader_.place();
  JinjaExpressionPtr made = reader_.is_operator(")")
                                ? std::make_unique<JinjaItems>(place, JinjaSequenceKind::kTuple,
                                                               std::vector<JinjaExpressionPtr>())
                                : expression_or_tuple();
  reader_.expect_operator(")");
  return made;
}

JinjaExpressionPtr JinjaExpressionParser::list() {
  const JinjaPlace place = reader_.place();
  std::vector<JinjaExpressionPtr> items;
  while (!reader_.is_operator("]")) {
    if (!items.empty()) reader_.expect_operator(",");
    if (reader_.is_operator("]")) break;
    items.push_back(expression());
  }
  reader_.expect_operator("]");
  return std::make_unique<JinjaItems>(place, JinjaSequenceKind::kList, std::move(items));
}

JinjaExpressionPtr JinjaExpressionParser::dict() {
  auto made = std::make_unique<JinjaDictItems>(reader_.place());
  while (!reader_.is_operator("}")) {
    if (!made->items.empty()) reader_.expect_operator(",");
    if (reader_.is_operator("}")) break;
    JinjaExpressionPtr key = expression();
    reader_.expect_operator(":");
    made->items.emplace_back(std::move(key), expression());
  }
  reader_.expect_operator("}");
  return made;
}

JinjaExpressionPtr JinjaExpressionParser::postfix(JinjaExpressionPtr made) {
  for (;;) {
    const JinjaPlace place = reader_.place();
    if (reader_.skip_operator("."))
      made = dotted(std::move(made));
    else if (reader_.is_operator("["))
      made = subscript(std::move(made));
    else if (reader_.is_operator("("))
      made = std::make_unique<JinjaCallOf>(place, std::move(made), arguments());
    else
      return made;
  }
}

JinjaExpressionPtr JinjaExpressionParser::dotted(JinjaExpressionPtr made) {
  const JinjaPlace place = reader_.place();
  if (reader_.is(Kind::kInteger)) {
    JinjaExpressionPtr key = primary();
    return std::make_unique<JinjaItem>(place, std::move(made), std::move(key));
  }
  return std::make_unique<JinjaAttribute>(
      place, std::move(made), reader_.expect(Kind::kName, "the name of an attribute").text);
}

JinjaExpressionPtr JinjaExpressionParser::subscript(JinjaExpressionPtr made) {
  const JinjaPlace place = reader_.place();
  reader_.expect_operator("[");
  const auto ends_bound = [&] { return reader_.is_operator(":") || reader_.is_operator("]"); };
  JinjaExpressionPtr first = ends_bound() ? nullptr : expression();
  if (first && !reader_.is_operator(":")) {
    reader_.expect_operator("]");
    return std::make_unique<JinjaItem>(place, std::move(made), std::move(first));
  }
  auto slice = std::make_unique<JinjaSlice>(place, std::move(made));
  slice->start = std::move(first);
  reader_.expect_operator(":");
  if (!ends_bound()) slice->stop = expression();
  if (reader_.skip_operator(":") && !ends_bound()) slice->step = expression();
  reader_.expect_operator("]");
  return slice;
}

JinjaArguments JinjaExpressionParser::arguments() {
  JinjaArguments made;
  reader_.expect_operator("(");
  for (bool first = true; !reader_.is_operator(")"); first = false) {
    if (!first) reader_.expect_operator(",");
    if (reader_.is_operator(")")) break;
    if (reader_.is_operator("*") || reader_.is_operator("**"))
      reader_.refuse("unpacked arguments are not supported", "each argument by itself");
    const bool is_named = reader_.is(Kind::kName) && reader_.following().kind == Kind::kOperator &&
                          reader_.following().text == "=";
    if (is_named) {
      const std::string name = reader_.next().text;
      reader_.next();
      made.named.emplace_back(name, expression());
    } else {
      if (!made.named.empty())
        reader_.refuse("an argument without a name follows one with a name", "name=value");
      made.arguments.push_back(expression());
    }
  }
  reader_.expect_operator(")");
  return made;
}

std::pair<JinjaExpressionPtr, JinjaArguments> JinjaExpressionParser::call() {
  JinjaExpressionPtr callee = primary();
  while (reader_.skip_operator(".")) callee = dotted(std::move(callee));
  return {std::move(callee), arguments()};
}

std::string JinjaExpressionParser::dotted_name() {
  std::string name = reader_.expect(Kind::kName, "a name").text;
  while (reader_.skip_operator(".")) name += "." + reader_.expect(Kind::kName, "a name").text;
  return name;
}

std::pair<std::string, JinjaArguments> JinjaExpressionParser::filter() {
  const JinjaPlace place = reader_.place();
  std::string name = dotted_name();
  check_filter(name, place, reader_);
  JinjaArguments with;
  if (reader_.is_operator("(")) with = arguments();
  return {std::move(name), std::move(with)};
}

JinjaExpressionPtr JinjaExpressionParser::filters_and_tests(JinjaExpressionPtr made) {
  for (;;) {
    const JinjaPlace place = reader_.place();
    if (reader_.skip_operator("|")) {
      auto [name, with] = filter();
      made =
          std::make_unique<JinjaFiltered>(place, std::move(made), std::move(name), std::move(with));
    } else if (reader_.skip_name("is")) {
      made = test(std::move(made));
    } else if (reader_.is_operator("(")) {
      made = std::make_unique<JinjaCallOf>(place, std::move(made), arguments());
    } else {
      return made;
    }
  }
}

JinjaExpressionPtr JinjaExpressionParser::test(JinjaExpressionPtr made) {
  const bool negated = reader_.skip_name("not");
  const JinjaPlace place = reader_.place();
  std::string name = dotted_name();
  check_test(name, place, reader_);
  JinjaExpressionPtr tested =
      std::make_unique<JinjaTested>(place, std::move(made), std::move(name), test_arguments());
  if (!negated) return tested;
  return std::make_unique<JinjaUnary>(place, "not", std::move(tested));
}

JinjaArguments JinjaExpressionParser::test_arguments() {
  if (reader_.is_operator("(")) return arguments();
  JinjaArguments made;
  const bool has_value = reader_.is(Kind::kString) || reader_.is(Kind::kInteger) ||
                         reader_.is(Kind::kFloat) || reader_.is_operator("[") ||
                         reader_.is_operator("{") || reader_.is(Kind::kName);
  const bool is_word = reader_.is_name("else") || reader_.is_name("or") || reader_.is_name("and");
  if (!has_value || is_word) return made;
  if (reader_.is_name("is")) reader_.refuse("tests cannot follow one another", "'and'");
  made.arguments.push_back(postfix(primary()));
  return made;
}

}  // namespace strata
