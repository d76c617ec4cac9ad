#include "strata/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>

#include "strata/jinja/expression_parser.h"

namespace strata {
namespace {

using Kind = JinjaTokenKind;

class StatementParser {
 public:
  explicit StatementParser(JinjaTokenReader& reader) : reader_(reader), expressions_(reader) {}

  JinjaBody whole() {
    JinjaBody made = body({});
    if (!reader_.is(Kind::kEnd)) reader_.refuse("a tag ends what has not begun");
    return made;
  }

 private:
  using Level = JinjaTokenReader::Level;

  // Statements up to a tag that begins with one of the names, which stays unread; or to the end.
  JinjaBody body(std::initializer_list<const char*> ends) {
    const Level level(reader_);
    JinjaBody made;
    while (!reader_.is(Kind::kEnd)) {
      const JinjaPlace place = reader_.place();
      if (reader_.is(Kind::kText)) {
        made.statements.push_back(std::make_unique<JinjaTextOutput>(place, reader_.next().text));
      } else if (reader_.is(Kind::kPrintBegin)) {
        made.statements.push_back(print());
      } else {
        const std::string& name = reader_.following().text;
        if (std::ranges::any_of(ends, [&](const char* end) { return name == end; })) return made;
        if (name.starts_with("end") || name == "else" || name == "elif") return made;
        reader_.next();
        made.statements.push_back(statement());
      }
    }
    return made;
  }

  // Passes "{% name", which must be here.
  void begin_tag(const std::string& name) {
    if (!reader_.is(Kind::kBlockBegin) || reader_.following().text != name)
      reader_.refuse("a tag does not end", "{% " + name + " %}");
    reader_.next(), reader_.next();
  }
  void end_tag() { reader_.expect(Kind::kBlockEnd, "'%}'"); }
  void whole_tag(const std::string& name) {
    begin_tag(name);
    end_tag();
  }

  std::unique_ptr<JinjaStatement> print() {
    const JinjaPlace place = reader_.next().place;
    auto made = std::make_unique<JinjaPrint>(place, expressions_.expression_or_tuple());
    reader_.expect(Kind::kPrintEnd, "'}}'");
    return made;
  }

  std::unique_ptr<JinjaStatement> statement() {
    const JinjaPlace place = reader_.place();
    const std::string name = reader_.current().text;
    if (!reader_.is(Kind::kName)) reader_.refuse("a tag has no name", "if, for, set, macro, ...");
    if (name == "if") return reader_.next(), conditional(place);
    if (name == "for") return reader_.next(), loop(place);
    if (name == "set") return reader_.next(), assignment(place);
    if (name == "macro") return reader_.next(), macro(place);
    if (name == "call") return reader_.next(), call_block(place);
    if (name == "filter") return reader_.next(), filter_block(place);
    if (name == "with") return reader_.next(), with(place);
    if (name == "generation") return reader_.next(), generation(place);
    if (name == "break" || name == "continue") return reader_.next(), leave(place, name);
    reader_.refuse("Strata does not support this tag of a template",
                   "if, for, set, macro, call, filter, with, generation, break or continue");
  }

  std::unique_ptr<JinjaStatement> leave(JinjaPlace place, const std::string& name) {
    if (loops_ == 0) refuse_outside(name);
    end_tag();
    return std::make_unique<JinjaLeave>(place,
                                        name == "break" ? JinjaFlow::kBreak : JinjaFlow::kContinue);
  }
  [[noreturn]] void refuse_outside(const std::string& name) {
    reader_.refuse("'" + name + "' is outside a loop", "{% for %}");
  }

  std::unique_ptr<JinjaStatement> conditional(JinjaPlace place) {
    auto made = std::make_unique<JinjaIf>(place);
    for (;;) {
      JinjaExpressionPtr condition = expressions_.expression_or_tuple(/*choice=*/false);
      end_tag();
      made->cases.emplace_back(std::move(condition), body({"elif", "else", "endif"}));
      if (reader_.following().text != "elif") break;
      begin_tag("elif");
    }
    if (reader_.following().text == "else") {
      whole_tag("else");
      made->cases.emplace_back(nullptr, body({"endif"}));
    }
    whole_tag("endif");
    return made;
  }

  std::unique_ptr<JinjaStatement> loop(JinjaPlace place) {
    auto made = std::make_unique<JinjaFor>(place);
    made->target = target(/*attributes=*/false);
    reader_.expect_name("in");
    made->items = expressions_.expression_or_tuple(/*choice=*/false);
    if (reader_.skip_name("if")) made->condition = expressions_.expression();
    if (reader_.is_name("recursive"))
      reader_.refuse("recursive loops are not supported", "a macro that calls itself");
    end_tag();
    ++loops_;
    made->body = body({"else", "endfor"});
    --loops_;
    if (reader_.following().text == "else") {
      whole_tag("else");
      made->otherwise = body({"endfor"});
    }
    whole_tag("endfor");
    return made;
  }

  // Names to assign to, up to "in", "=", "|" or the end of the tag.
  JinjaTarget target(bool attributes) {
    const Level level(reader_);
    JinjaTarget made;
    bool is_tuple = false;
    do {
      if (!made.items.empty()) is_tuple = true;
      if (reader_.is_operator(")") || reader_.is_operator("=") || reader_.is_name("in")) break;
      made.items.push_back(single_target(attributes));
    } while (reader_.skip_operator(","));
    if (made.items.empty()) reader_.refuse("there is no name to assign to", "a name");
    return is_tuple ? made : made.items.front();
  }

  JinjaTarget single_target(bool attributes) {
    if (reader_.skip_operator("(")) {
      JinjaTarget made = target(attributes);
      reader_.expect_operator(")");
      return made;
    }
    JinjaTarget made;
    made.name = reader_.expect(Kind::kName, "the name of a variable").text;
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (made.name == word) reader_.refuse("a constant is no name to assign to", "a name");
    if (attributes && reader_.skip_operator("."))
      made.attribute = reader_.expect(Kind::kName, "the name of an attribute").text;
    return made;
  }

  std::vector<JinjaBodyFilter> filters() {
    std::vector<JinjaBodyFilter> made;
    do {
      auto [name, arguments] = expressions_.filter();
      made.push_back({std::move(name), std::move(arguments)});
    } while (reader_.skip_operator("|"));
    return made;
  }

  std::unique_ptr<JinjaStatement> assignment(JinjaPlace place) {
    JinjaTarget name = target(/*attributes=*/true);
    if (reader_.skip_operator("=")) {
      auto made = std::make_unique<JinjaSet>(place);
      made->target = std::move(name);
      made->value = expressions_.expression_or_tuple();
      end_tag();
      return made;
    }
    auto made = std::make_unique<JinjaFilteredBody>(place);
    made->target = std::move(name);
    if (reader_.skip_operator("|")) made->filters = filters();
    end_tag();
    made->body = body({"endset"});
    whole_tag("endset");
    return made;
  }

  std::unique_ptr<JinjaStatement> filter_block(JinjaPlace place) {
    auto made = std::make_unique<JinjaFilteredBody>(place);
    made->filters = filters();
    end_tag();
    made->body = body({"endfilter"});
    whole_tag("endfilter");
    return made;
  }

  void read_parameters(JinjaSignature& signature) {
    reader_.expect_operator("(");
    while (!reader_.is_operator(")")) {
      if (!signature.parameters.empty()) reader_.expect_operator(",");
      if (reader_.is_operator(")")) break;
      signature.parameters.push_back(reader_.expect(Kind::kName, "the name of a parameter").text);
      if (reader_.skip_operator("="))
        signature.defaults.push_back(expressions_.expression());
      else if (!signature.defaults.empty())
        reader_.refuse("a parameter without a default follows one with a default", "'='");
    }
    reader_.expect_operator(")");
  }

  // A loop around a macro is not one that the macro can leave.
  void read_body_of(JinjaSignature& signature, const char* end) {
    end_tag();
    const int loops = std::exchange(loops_, 0);
    signature.body = body({end});
    loops_ = loops;
    whole_tag(end);
  }

  std::unique_ptr<JinjaStatement> macro(JinjaPlace place) {
    auto made = std::make_unique<JinjaMacro>(place);
    made->signature.name = reader_.expect(Kind::kName, "the name of a macro").text;
    read_parameters(made->signature);
    read_body_of(made->signature, "endmacro");
    return made;
  }

  std::unique_ptr<JinjaStatement> call_block(JinjaPlace place) {
    auto made = std::make_unique<JinjaCallBlock>(place);
    made->signature.name = "caller";
    if (reader_.is_operator("(")) read_parameters(made->signature);
    std::tie(made->callee, made->arguments) = expressions_.call();
    read_body_of(made->signature, "endcall");
    return made;
  }

  std::unique_ptr<JinjaStatement> with(JinjaPlace place) {
    auto made = std::make_unique<JinjaWith>(place);
    while (!reader_.is(Kind::kBlockEnd)) {
      if (!made->values.empty()) reader_.expect_operator(",");
      JinjaTarget name = single_target(/*attributes=*/false);
      reader_.expect_operator("=");
      made->values.emplace_back(std::move(name), expressions_.expression());
    }
    end_tag();
    made->body = body({"endwith"});
    whole_tag("endwith");
    return made;
  }

  std::unique_ptr<JinjaStatement> generation(JinjaPlace place) {
    auto made = std::make_unique<JinjaGeneration>(place);
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made->body = body({"endgeneration"});
    loops_ = loops;
    whole_tag("endgeneration");
    return made;
  }

  JinjaTokenReader& reader_;
  JinjaExpressionParser expressions_;
  int loops_ = 0;  // that break and continue may leave here
};

}  // namespace

JinjaBody parse_jinja(std::vector<JinjaToken> tokens, const std::string& name) {
  JinjaTokenReader reader(std::move(tokens), name);
  return StatementParser(reader).whole();
}

}  // namespace strata
