// Hostile grammars are read and followed within limits, or refused with a UserError.
#include <gtest/gtest.h>

#include <random>

#include "strata/grammar/matches_test.h"
#include "strata/grammar/token_grammar.h"

namespace strata {
namespace {

std::string times(std::string_view part, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

// Follows a text as far as it goes; false: refused.
bool follows(const RootOf& root, std::string_view text) {
  try {
    Matches(root).begins(text);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(HostileGrammars, DeepAndLongGrammarsAreReadOrRefused) {
  const std::string a = times("a", 300);
  follows(regex_root(times("(", 100'000)), a);
  follows(regex_root(times("(", 150) + "a" + times(")*", 150)), a);
  follows(regex_root(times("(", 150) + "a" + times("){0,1000}", 150)), a);
  follows(regex_root(times("a?", 5'000) + times("a", 5'000)), a);
  follows(regex_root("(" + times("a|", 30'000) + "b)*"), a);
  follows(regex_root(times("(a|b)*a", 100) + "(a|b){100000}"), a);
  follows(regex_root(times("a", 10'000'000)), a);
  follows(regex_root("(((a{1000}){1000}){1000}){1000}"), a);
  follows(regex_root("(((a?){1000}){1000}){1000}"), a);
  follows(regex_root("[" + times("a-z", 200'000) + "]"), a);
  follows(gbnf_root("root ::= " + times("(", 100'000)), a);
  follows(gbnf_root("root ::= " + times("(\"\"", 150) + times("){100}", 150)), a);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 15'000; ++i)
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "?\n";
  follows(gbnf_root(chain + "r15000 ::= \"a\""), a);
}

TEST(HostileGrammars, AmbiguousGrammarsAreFollowedWithinLimits) {
  const std::string a = times("a", 400);
  follows(gbnf_root("root ::= \"a\" root root | \"a\""), a);
  follows(
      gbnf_root("root ::= (\"a\" | \"aa\" | \"aaa\" | x){0,100000} \"b\"\nx ::= \"a\" root? \"a\""),
      a);
  follows(gbnf_root("root ::= s{0,500}\ns ::= t{0,500}\nt ::= (\"a\" | \"aa\"){1,500}"), a);
  follows(regex_root("(a{0,1000}a{0,1000}){0,1000}a{0,1000}"), a);
}

TEST(HostileGrammars, SchemasThatJoinThemselvesAreRefused) {
  EXPECT_NE(refusal_of(schema_root(R"({"allOf":[{"$ref":"#"},{"$ref":"#"}]})")), "");
  EXPECT_NE(refusal_of(schema_root(
                R"({"properties":{"a":{"allOf":[{"$ref":"#"},{"properties":{"b":{}}}]}},)"
                R"("required":["a"],"additionalProperties":true})")),
            "");
  std::string schema = R"({"type":"integer"})";
  for (int i = 0; i < 14; ++i) schema = R"({"anyOf":[)" + schema + "," + schema + "]}";
  follows(schema_root(schema), "1");
  follows(schema_root(R"({"type":"object","properties":{")" + times("x", 1'000'000) +
                      R"(":{}},"additionalProperties":true})"),
          "{");
}

// Texts `part(i)` with commas between them.
template <typename Part>
std::string list_of(int count, const Part& part) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + part(i);
  return all;
}

std::string name(int i) { return "\"n" + std::to_string(i) + "\""; }

void expect_too_large(const std::string& schema) {
  const std::string refusal = refusal_of(schema_root(schema));
  EXPECT_NE(refusal.find("the schema is too large"), std::string::npos)
      << schema.substr(0, 80) << "\n"
      << refusal;
}

TEST(HostileGrammars, SchemasWithManyValuesAreRefused) {
  const auto member = [](int i) { return name(i) + ":{}"; };
  expect_too_large(R"({"required":[)" + list_of(20'000, name) + "]}");
  expect_too_large(R"({"properties":{)" + list_of(2'001, member) + "}}");
  expect_too_large(R"({"allOf":[)" +
                   list_of(6'000, [&](int i) { return R"({"properties":{)" + member(i) + "}}"; }) +
                   "]}");
  EXPECT_EQ(refusal_of(schema_root(R"({"properties":{)" + list_of(500, member) + "}}")), "");
}

TEST(HostileGrammars, SchemasThatCopyTheirPartsAreRefused) {
  const auto member = [](int i) { return name(i) + ":{}"; };
  const auto empty = [](int) { return std::string("{}"); };
  const auto part = [](int) { return std::string(R"({"$ref":"#/$defs/a"})"); };
  const std::string properties = R"({"properties":{)" + list_of(2'000, member) + "}}";
  expect_too_large(R"({"allOf":[)" +
                   list_of(4'000, [&](int i) { return R"({"properties":{)" + member(i) + "}}"; }) +
                   "]}");
  expect_too_large(R"({"allOf":[)" + list_of(5'000, part) + R"(],"$defs":{"a":)" + properties +
                   "}}");
  expect_too_large(R"({"type":"null","enum":[)" + list_of(9'000, name) + R"(],"anyOf":[)" +
                   list_of(9'000, empty) + "]}");
  EXPECT_NE(refusal_of(schema_root(R"({"required":[)" + list_of(9'000, name) + R"(],"anyOf":[)" +
                                   list_of(9'000, empty) + "]}")),
            "");
  expect_too_large(R"({"$ref":"#/$defs/)" + times("k", 1'000'000) + R"(","$defs":{")" +
                   times("k", 1'000'000) + R"(":{"properties":{)" + list_of(1'900, member) +
                   "}}}}");
}

TEST(HostileGrammars, ListsOfNamesAndTypesAreReadOnce) {
  const auto type = [](int i) { return std::string(i % 2 == 0 ? "\"null\"" : "\"boolean\""); };
  const auto twice = [](const std::string& part) { return R"({"allOf":[)" + part + "," + part; };
  follows(schema_root(R"({"required":[)" + list_of(10'000, name) + "]}"), "{");
  follows(schema_root(twice(R"({"required":[)" + list_of(9'900, name) + "]}") +
                      R"(,{"required":["x"]}]})"),
          "{");
  follows(
      schema_root(twice(R"({"type":[)" + list_of(9'900, type) + "]}") + R"(,{"type":["null"]}]})"),
      "null");
  follows(
      schema_root(twice(R"({"enum":[)" + list_of(9'900, name) + "]}") + R"(,{"enum":["n5"]}]})"),
      "\"n5\"");
  std::string other = R"({"properties":{"a":{}},"required":[)" + list_of(9'900, name);
  follows(
      schema_root(other + R"(],"additionalProperties":{"type":[)" + list_of(9'900, type) + "]}}"),
      "{");
}

TEST(HostileGrammars, MutatedGrammarsAreReadOrRefused) {
  const std::vector<std::pair<std::string, int>> seeds = {
      {R"re(^(?:[a-f\d_]{2,5}|(?<n>x+?y*)|\u00e9[^\]\\]?)$|z{3,200})re", 0},
      {"root ::= (a | \"b\" [^x-z]{1,300})* # c\na ::= \"\\u00e9\" root? | [0-9]+ a \"x\"\n", 1},
      {R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":70},"b":{"anyOf":[{"$ref":"#/$defs/s"},)"
       R"({"type":"null"}]},"c":{"type":"array","prefixItems":[{"const":1.5}],"items":{"enum":["x",2]},"minItems":1}},)"
       R"("required":["b"],"additionalProperties":{"type":"string","pattern":"^a+$"},"$defs":{"s":{"type":"string","maxLength":200}}})",
       2}};
  std::mt19937 random(20261124);
  const auto below = [&](std::size_t count) { return random() % count; };
  const std::string alphabet("{}[]()\":,0123456789.-+*?|^$\\aeu#/ \xC3\xA9\xFF\n");
  int read = 0;
  for (int i = 0; i < 12'000; ++i) {
    const auto& [seed, kind] = seeds[below(3)];
    std::string text = seed;
    for (std::size_t edits = below(3) + 1; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = below(text.size()),
                        length = std::min<std::size_t>(below(9) + 1, text.size() - at);
      switch (below(4)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), length));
          break;
        default:
          text.insert(at, std::to_string(static_cast<std::int32_t>(random())));
      }
    }
    if (kind == 2 && !nlohmann::ordered_json::accept(text)) continue;
    const RootOf root = kind == 0   ? regex_root(text)
                        : kind == 1 ? gbnf_root(text)
                                    : schema_root(text);
    read +=
        follows(root, kind == 2 ? "{\"a\": 3, \"b\": \"x\", \"c\": [1.5, \"x\"]" : "abz33") ? 1 : 0;
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace strata
