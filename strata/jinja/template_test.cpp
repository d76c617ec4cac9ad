#include "strata/jinja/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "strata/base/errors.h"

namespace strata {
namespace {

const nlohmann::ordered_json kChat = {
    {"messages",
     {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Yes"}}}},
    {"bos_token", "<s>"}};

std::string rendered(const std::string& text) {
  return JinjaTemplate::parse(text, "chat.jinja").render(kChat, /*now=*/0);
}

std::string refusal(const std::string& text) {
  try {
    return "rendered: " + rendered(text);
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(JinjaTemplate, WritesAConversation) {
  EXPECT_EQ(
      rendered(
          "{{ bos_token }}{% for m in messages %}\n<{{ m.role }}>{{ m['content'] }}\n{% endfor %}"),
      "<s><user>Hi\n<assistant>Yes\n");
}

TEST(JinjaTemplate, TrimsLineEndsAfterTagsAndSpacesBeforeThem) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n b {{- 1 }}\n  {%- endif %}\n"), "a\n b1");
}

TEST(JinjaTemplate, KeepsWhatALoopSetsInANamespaceAlone) {
  EXPECT_EQ(rendered("{% set ns = namespace(n=0) %}{% set k = 0 %}{% for m in messages %}{% set "
                     "ns.n = ns.n + 1 %}"
                     "{% set k = 1 %}{% endfor %}{{ ns.n }}{{ k }}"),
            "20");
}

TEST(JinjaTemplate, WritesJsonAndReprAsPython) {
  EXPECT_EQ(
      rendered(
          "{{ messages[0] | tojson }} {{ [1.0, none, 'a\\'b', (1,)] }} {{ 1e16 }} {{ 7 // -2 }}"),
      R"({"role": "user", "content": "Hi"} [1.0, None, "a'b", (1,)] 1e+16 -4)");
}

TEST(JinjaTemplate, FormatsTheGivenTime) {
  EXPECT_EQ(rendered("{{ strftime_now('%Y') }}"), "1970");
}

TEST(JinjaTemplate, NamesThePlaceOfAnError) {
  EXPECT_EQ(refusal("one\n  {{ missing.name }}"),
            "[jinja.template] chat.jinja:2:14: 'missing' is undefined");
  EXPECT_NE(refusal("{% for m in messages %}x").find("chat.jinja:1:25: a tag does not end"),
            std::string::npos)
      << refusal("{% for m in messages %}x");
}

TEST(JinjaTemplate, ReportsTheTemplatesOwnException) {
  const std::string text = refusal("{{ raise_exception('roles must alternate') }}");
  EXPECT_NE(text.find("the template refuses its input"), std::string::npos) << text;
  EXPECT_NE(text.find("roles must alternate"), std::string::npos) << text;
}

TEST(JinjaTemplate, RefusesByNameWhatItDoesNotSupport) {
  for (const char* text :
       {"{% include 'a' %}", "{% extends 'a' %}", "{% block a %}{% endblock %}",
        "{% for a in messages recursive %}{% endfor %}", "{{ f(*messages) }}", "{{ 1 | urlize }}",
        "{{ 1 is escaped }}", "{{ '%s' % 1 }}", "{{ [].append(1) }}", "{{ ''.__class__ }}"})
    EXPECT_NE(refusal(text).find("support"), std::string::npos) << text << ": " << refusal(text);
  EXPECT_NE(refusal("{{ 'a' | uper }}").find("perhaps 'upper'"), std::string::npos);
}

TEST(JinjaTemplate, EndsAHostileTemplateWithAnError) {
  const std::string deep(100'000, '(');
  const std::string loops =
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}";
  for (const std::string& text :
       {"{{ " + deep,
        "{{ " + std::string(100'000, '-') + "1 }}",
        "{{ not " + deep,
        loops,
        std::string("{{ 'a' * 999999999999 }}"),
        std::string("{{ [1] * 999999999 }}"),
        std::string("{{ range(10000000) | list }}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        std::string("{{ 2 ** 64 }}"),
        std::string("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set "
                    "ns.s = ns.s ~ ns.s %}{% endfor %}"),
        std::string("{{ 9223372036854775807 + 1 }}"),
        std::string("{{ 'x' | center(999999999) }}"),
        std::string("{{ 1 // 0 }}"),
        std::string("{{ 1 % 0 }}"),
        std::string("{{ (['a' * 16000000] * 10) | tojson | length }}"),
        std::string("{{ [[1]] | map(attribute='99999999999999999999') | list }}{{ f() }}"),
        std::string("{%"),
        std::string("{{"),
        std::string("{#"),
        std::string("{% raw %}"),
        std::string("{{ '\\"),
        std::string("{% if %}"),
        std::string("{{ 'a"),
        std::string("{{ }}"),
        std::string("{% set = 1 %}"),
        std::string("{% endif %}")})
    EXPECT_TRUE(refusal(text).starts_with("[jinja.template]"))
        << text.substr(0, 60) << ": " << refusal(text).substr(0, 200);
}

TEST(JinjaTemplate, FreesANamespaceThatHoldsItself) {  // the leak sanitizer reports a cycle
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me is defined }}"),
            "True");
}

}  // namespace
}  // namespace strata
