#include <gtest/gtest.h>

#include "strata/grammar/matches_test.h"

namespace strata {
namespace {

using Texts = std::vector<std::string>;

void expect_texts(const std::string& schema, const Texts& valid, const Texts& invalid) {
  Matches matches(schema_root(schema));
  for (const std::string& text : valid) EXPECT_TRUE(matches(text)) << schema << '\n' << text;
  for (const std::string& text : invalid) EXPECT_FALSE(matches(text)) << schema << '\n' << text;
}

TEST(JsonSchema, MembersComeInOrder) {
  expect_texts(R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"null"},)"
               R"("c":{"type":"boolean"}},"required":["a"]})",
               {R"({"b":1,"a":null,"c":true})", R"({"a":null})", R"({"b": -7, "a": null})",
                R"({"a":null,"c":false})", "{\n  \"b\": 1,\n  \"a\": null\n}"},
               {R"({})", R"({"b":1})", R"({"a":null,"b":1})", R"({"a":null,"d":1})",
                R"({"a":null,})", R"({"b":1 ,"a":null})", R"({"b":1.5,"a":null})",
                "{\"a\":\n\n\nnull}", R"( {"a":null})", R"({"a":  null})"});
}

TEST(JsonSchema, LeadingMembersMayBeMissing) {
  const std::string properties =
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},)"
      R"("c":{"const":3}})";
  expect_texts(properties + "}",
               {"{}", R"({"a":1})", R"({"b":2})", R"({"c":3})", R"({"a":1,"c":3})",
                R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
               {R"({"c":3,"a":1})", R"({"a":1,"a":1})", R"({,"a":1})", R"({"x":1})"});
  expect_texts(properties + R"(,"required":["b"]})",
               {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})"},
               {"{}", R"({"a":1})", R"({"c":3})", R"({"a":1,"c":3})"});
  expect_texts(properties + R"(,"additionalProperties":{"type":"null"}})",
               {"{}", R"({"x":null})", R"({"a":1,"x":null,"y":null})", R"({"b":2,"ab":null})"},
               {R"({"x":1})", R"({"x":null,"a":1})", R"({"a":null})"});
}

TEST(JsonSchema, OtherKeysNeverSpellAProperty) {
  expect_texts(
      R"({"type":"object","properties":{"ab":{"const":1},"abc":{"const":1},"\"":{"const":1}},)"
      R"("additionalProperties":{"const":2}})",
      {R"({"a":2})", R"({"abd":2})", R"({"":2})", R"({"abcd":2})", R"({"\"\"":2})",
       R"({"ab":1,"b":2})", "{\"\xC3\xA9\":2}", R"({"\n":2})"},
      {R"({"ab":2})", R"({"abc":2})", R"({"\"":2})", R"({"\u0061b":2})", R"({"a":1})"});
}

TEST(JsonSchema, RequiredMembersThatAreNotListedHaveAnyValue) {
  expect_texts(R"({"type":"object","required":["x"],"additionalProperties":{"type":"integer"}})",
               {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":2})", R"({"x":"a"})"});
  EXPECT_NE(refusal_of(schema_root(R"({"required":["x"],"additionalProperties":false})"))
                .find("no text matches"),
            std::string::npos);
}

TEST(JsonSchema, MapsCountTheirMembers) {
  expect_texts(R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,)"
               R"("maxProperties":2})",
               {R"({"a":1})", R"({"a":1,"b":2})"},
               {"{}", R"({"a":1,"b":2,"c":3})", R"({"a":"x"})"});
}

TEST(JsonSchema, ListsHavePrefixesAndBounds) {
  expect_texts(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
               {"[1]", "[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
               {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"});
  expect_texts(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":false})",
      {"[]", "[1]", "[1,null]"}, {"[null]", "[1,null,1]"});
  expect_texts(R"({"prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"const":"x"},)"
               R"("minItems":1,"maxItems":4})",
               {"[1]", "[1,null]", R"([1,null,"x"])", R"([1,null,"x","x"])"},
               {"[]", R"([1,"x"])", R"([1,null,"x","x","x"])", "[1,null,null]"});
  expect_texts(R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"});
}

TEST(JsonSchema, StringsCountCharacters) {
  expect_texts(R"({"type":"string","minLength":2,"maxLength":3})",
               {R"("ab")", R"("abc")", "\"\xC3\xA9\xF0\x9F\x98\x80\"", R"("\n\"")",
                R"("\u00e9\uD83D\uDE00")"},
               {R"("a")", R"("abcd")", R"("\uD83D\uDE00")", R"("a\")", "\"a\n\"", R"("\ud83dxx")",
                R"("a\x")"});
}

TEST(JsonSchema, PatternsSearchUnlessAnchored) {
  expect_texts(R"({"type":"string","pattern":"a\"b"})", {R"("xa\"by")", R"("a\"b")"},
               {R"("ab")", R"("a"b")"});
  expect_texts(R"({"type":"string","pattern":"^[^x]{2}$"})",
               {R"("\\\"")", R"("\nz")", R"("\u0001z")"}, {R"("x1")", R"("abc")", "\"\nz\""});
}

TEST(JsonSchema, PatternsMatchNoMoreThanInJavaScript) {
  expect_texts(R"({"type":"string","pattern":"^.$"})", {R"("a")", R"("\t")", "\"\xC2\x85\""},
               {R"("\n")", R"("\r")", "\"\xE2\x80\xA8\"", "\"\xE2\x80\xA9\""});
  for (const char* pattern : {R"(^\\S$)", R"(^[^\\s]$)", R"(^[\\S]$)"})
    expect_texts(R"({"type":"string","pattern":")" + std::string(pattern) + "\"}",
                 {R"("a")", "\"\xC3\xA9\""},
                 {R"(" ")", R"("\n")", "\"\xC2\xA0\"", "\"\xE2\x80\xA8\"", "\"\xE3\x80\x80\"",
                  "\"\xEF\xBB\xBF\""});
  for (const char* pattern : {R"(^\\s$)", R"(^[^\\S]$)"})
    expect_texts(R"({"type":"string","pattern":")" + std::string(pattern) + "\"}",
                 {R"(" ")", R"("\n")"}, {R"("a")", "\"\xC2\x85\""});
}

TEST(JsonSchema, FormatsHavePatterns) {
  const std::pair<const char*, std::pair<Texts, Texts>> cases[] = {
      {"date",
       {{"2024-02-29", "2023-12-31", "2000-02-29"},
        {"2023-02-29", "1900-02-29", "2024-04-31", "24-01-01"}}},
      {"time", {{"23:59:59Z", "00:00:00.5+01:00"}, {"24:00:00Z", "12:00:00", "1:00:00Z"}}},
      {"date-time", {{"2024-02-29T12:00:00Z"}, {"2024-02-29", "2024-02-29 12:00:00Z"}}},
      {"duration", {{"P1D", "PT1H2M", "P2W", "P1Y2M3DT4S"}, {"P", "PT", "P1DT", "1D"}}},
      {"uuid", {{"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}}},
      {"email", {{"a.b+c@x-y.org"}, {"a@b", "@x.org", "a b@x.org"}}},
      {"hostname", {{"a.b-c.d"}, {"-a", "a..b"}}},
      {"ipv4", {{"0.10.255.1"}, {"256.1.1.1", "1.1.1", "01.1.1.1"}}},
      {"ipv6",
       {{"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4"},
        {":", "1:2", "1::2::3", "12345::"}}},
      {"uri",
       {{"https://a.b/c?d=e#f", "urn:x:y", "mailto:a@b.c"}, {"a.b/c", "http://a b", "://x"}}}};
  for (const auto& [format, texts] : cases) {
    Matches matches(schema_root(R"({"type":"string","format":")" + std::string(format) + "\"}"));
    for (const std::string& text : texts.first) EXPECT_TRUE(matches('"' + text + '"')) << text;
    for (const std::string& text : texts.second) EXPECT_FALSE(matches('"' + text + '"')) << text;
  }
}

TEST(JsonSchema, BoundsOfIntegersAreExact) {
  const std::pair<std::int64_t, std::int64_t> ranges[] = {
      {0, 0},    {-5, 5}, {7, 123}, {-123, -7},  {9, 10},    {99, 1001},
      {-10, 99}, {1, 9},  {10, 99}, {-100, 100}, {250, 255}, {-1, 0}};
  for (const auto& [least, most] : ranges) {
    Matches matches(schema_root(R"({"type":"integer","minimum":)" + std::to_string(least) +
                                R"(,"maximum":)" + std::to_string(most) + "}"));
    for (std::int64_t number = -1200; number <= 1200; ++number)
      EXPECT_EQ(matches(std::to_string(number)), number >= least && number <= most)
          << least << ' ' << most << ' ' << number;
    EXPECT_FALSE(matches("07"));
  }
  expect_texts(R"({"type":"integer","exclusiveMinimum":2.5,"exclusiveMaximum":5})", {"3", "4"},
               {"2", "5"});
  expect_texts(R"({"type":"integer","minimum":-12})", {"-12", "0", "5", "99999999999999999999"},
               {"-13", "-100"});
  expect_texts(R"({"type":"integer","maximum":-12})", {"-12", "-99999999999999999999"},
               {"-11", "0", "12"});
  expect_texts(R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
               {"-9223372036854775808", "9223372036854775807"},
               {"-9223372036854775809", "9223372036854775808"});
}

TEST(JsonSchema, BoundsBeyondAllIntegersLeaveNone) {
  for (const char* bound :
       {R"("exclusiveMinimum":9223372036854775807)", R"("exclusiveMaximum":-9223372036854775808)",
        R"("minimum":3,"maximum":2)"}) {
    const std::string integer = std::string(R"({"type":"integer",)") + bound + "}";
    expect_texts(R"({"anyOf":[{"type":"null"},)" + integer + "]}", {"null"},
                 {"0", "9223372036854775807", "9223372036854775808", "-9223372036854775808"});
    EXPECT_NE(refusal_of(schema_root(integer)).find("no text matches"), std::string::npos);
  }
  expect_texts(R"({"type":"integer","exclusiveMinimum":9223372036854775806})",
               {"9223372036854775807"}, {"9223372036854775806"});
}

TEST(JsonSchema, NumbersHaveTheGrammarOfJson) {
  expect_texts(R"({"type":"number"})", {"0", "-0.5", "12e+3", "1.0E-7"},
               {"01", ".5", "1.", "+1", "1e", "NaN"});
}

TEST(JsonSchema, ValuesAreWrittenInFull) {
  expect_texts(
      R"({"enum":["a\"\n",1,2.5,null,true,{"x":[1,{}]},[]]})",
      {R"("a\"\n")", "1", "2.5", "null", "true", R"({"x":[1,{}]})", R"({"x": [1, {}]})", "[]"},
      {"2", "false", R"({"x":[1]})", R"("a")"});
  expect_texts(R"({"enum":["a",1,null],"type":["string","null"]})", {R"("a")", "null"}, {"1"});
  expect_texts(R"({"const":"x","nullable":true})", {R"("x")"}, {"null"});
}

TEST(JsonSchema, TypesMayBeSeveral) {
  expect_texts(R"({"type":["integer","null","array"],"items":{"type":"boolean"},"minimum":3})",
               {"3", "null", "[true]"}, {"2", "true", "[3]", R"("a")"});
  expect_texts(R"({"type":"string","nullable":true,"maxLength":1})", {"null", R"("a")"},
               {R"("ab")"});
  expect_texts(R"({"minLength":1})", {R"("a")"}, {R"("")", "1"});
  expect_texts("{}", {"1", "{}", "[[1,{\"a\":\"b\"}],null]", "\"x\""},
               {"", "nul", "{\"a\"}", "[1 ,2]"});
  expect_texts("true", {"1"}, {""});
}

TEST(JsonSchema, AlternativesJoinTheSchemaAroundThem) {
  expect_texts(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},)"
               R"("additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
               {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"});
  expect_texts(R"({"oneOf":[{"type":"integer","maximum":3},{"type":"string"}],"description":"d"})",
               {"3", R"("x")"}, {"4", "null"});
}

TEST(JsonSchema, AllOfJoinsItsParts) {
  expect_texts(
      R"({"$defs":{"n":{"type":"number"}},"allOf":[{"$ref":"#/$defs/n"},{"type":"integer","minimum":2},)"
      R"({"minimum":5,"maximum":9},{"maximum":7}]})",
      {"5", "7"}, {"4", "8", "5.5"});
  expect_texts(
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},)"
      R"({"properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["b"]}]})",
      {R"({"a":1,"b":null})"}, {R"({"a":1})", R"({"a":1.5,"b":null})"});
  EXPECT_NE(refusal_of(schema_root(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})"))
                .find("'pattern' cannot be joined"),
            std::string::npos);
}

TEST(JsonSchema, AllOfRefusesItemsThatMeetAPrefix) {
  for (const char* parts : {R"({"type":"array","prefixItems":[{"type":"string"}]},)"
                            R"({"type":"array","items":{"type":"integer"}})",
                            R"({"items":false},{"minItems":1},{"prefixItems":[true]})"})
    EXPECT_NE(refusal_of(schema_root(std::string(R"({"allOf":[)") + parts + "]}"))
                  .find("'prefixItems' cannot be joined with 'items'"),
              std::string::npos)
        << parts;
  expect_texts(R"({"allOf":[{"prefixItems":[{"type":"string"}],"items":false},{"minItems":1},)"
               R"({"items":true}]})",
               {R"(["x"])"}, {"[]", "[1]", R"(["x",1])"});
  expect_texts(R"({"allOf":[{"prefixItems":[{"type":"string"}],"items":{"type":"number"}},)"
               R"({"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}]})",
               {R"(["x",1])", "[]"}, {R"(["x",1.5])", "[1]"});
}

TEST(JsonSchema, AllOfKeepsNullOnlyIfAllPartsAllowIt) {
  expect_texts(R"({"allOf":[{"type":"string","nullable":true},{"type":"string"}]})", {R"("a")"},
               {"null"});
  expect_texts(R"({"allOf":[{"type":"string"},{"type":"string","nullable":true}]})", {R"("a")"},
               {"null"});
  expect_texts(R"({"allOf":[{"type":"string","nullable":true},{"type":["null","string"]}]})",
               {R"("a")", "null"}, {"1"});
  expect_texts(R"({"allOf":[{"type":"string","nullable":true},{"nullable":true,"maxLength":1}]})",
               {R"("a")", "null"}, {R"("ab")"});
  expect_texts(R"({"allOf":[{"nullable":true},{"type":"string"}]})", {R"("a")"}, {"null"});
}

TEST(JsonSchema, AllOfJoinsListsOfTypesAndNames) {
  expect_texts(R"({"allOf":[{"type":["number","string","string"]},{"type":["integer","string"]}]})",
               {"1", R"("a")"}, {"1.5", "null"});
  expect_texts(R"({"allOf":[{"enum":[1,"a",{"x":1},1]},{"enum":[{"x":1},1,null]}]})",
               {"1", R"({"x":1})"}, {R"("a")", "null"});
  expect_texts(R"({"allOf":[{"properties":{"a":{"const":1},"b":{"const":2}},"required":["b"]},)"
               R"({"properties":{"c":{"const":3},"b":{"const":2}},"required":["b","c"]}]})",
               {R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"}, {R"({"b":2})", R"({"c":3,"b":2})"});
}

TEST(JsonSchema, ReferencesMayRecur) {
  const std::string tree =
      R"({"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"object","properties":{"v":{"type":"integer"},)"
      R"("kids":{"type":"array","items":{"$ref":"#/$defs/a~1b%20c"}}},"required":["v"]}}})";
  expect_texts(tree, {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"},
               {R"({"kids":[]})", R"({"v":1,"kids":[{}]})"});
  expect_texts(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  EXPECT_NE(refusal_of(schema_root(R"({"$ref":"#"})")).find("no text"), std::string::npos);
  EXPECT_NE(refusal_of(schema_root(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"))
                .find("'#': the rule begins with itself"),
            std::string::npos);
}

TEST(JsonSchema, RefusalsHaveTheirPointer) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{}})", "#/not: the keyword is not supported"},
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
       "#/properties/a/uniqueItems"},
      {R"({"anyOf":[{"type":"null"},{"multipleOf":2}]})", "#/anyOf/1/multipleOf"},
      {R"({"$defs":{"x":{"if":{}}},"type":"array","items":{"$ref":"#/$defs/x"}})", "#/$defs/x/if"},
      {R"({"type":"string","format":"regex"})", "#/format: the format is not supported"},
      {R"s({"type":"string","pattern":"(?=a)"})s", "look-around"},
      {R"({"type":"string","pattern":"a","minLength":2})", "not supported together"},
      {R"({"type":"number","minimum":1})", "#/minimum: bounds are supported for integers only"},
      {R"({"type":"strin"})", "#/type: the type is not known"},
      {R"({"items":[{}]})", "#/items: a list of schemas is not supported"},
      {R"({"$ref":"http://x/y"})", "#/$ref: the reference is not supported"},
      {R"({"$ref":"#/$defs/x"})", "has no target"},
      {R"({"$ref":"#/a~2"})", "has no target"},
      {R"({"enum":[]})", "#/enum"},
      {R"({"enum":[1],"minimum":0})", "#/minimum: the keyword is not supported together with enum"},
      {R"({"required":"a"})", "#/required"},
      {R"({"required":{}})", "#/required: the value cannot be used"},
      {R"({"required":null})", "#/required: the value cannot be used"},
      {R"({"required":[1]})", "#/required: the value cannot be used"},
      {R"({"type":"integer","minimum":9223372036854775808})", "#/minimum: the bound"},
      {R"({"type":"integer","maximum":-9223372036854775809})", "#/maximum: the bound"},
      {R"({"type":"integer","exclusiveMinimum":18446744073709551615})", "#/exclusiveMinimum"},
      {R"({"properties":[]})", "#/properties"},
      {R"({"minItems":-1,"type":"array"})", "#/minItems"},
      {R"({"patternProperties":{}})", "#/patternProperties"},
      {R"({"exclusiveMinimum":true,"type":"integer"})", "#/exclusiveMinimum"},
      {R"({"allOf":[{"$ref":"#"},{"type":"null"}]})", "joins itself"},
      {"3", "#: the value is no schema"},
      {"false", "no text matches"}};
  for (const auto& [schema, part] : cases) {
    const std::string error = refusal_of(schema_root(schema));
    EXPECT_NE(error.find(part), std::string::npos) << schema << '\n'
                                                   << error << "\nhas no " << part;
  }
}

TEST(JsonSchema, AnnotationsAreIgnored) {
  expect_texts(
      R"({"$schema":"s","$id":"i","title":"t","description":"d","default":3,"examples":[1],)"
      R"("type":"integer","x-order":1,"deprecated":true,"$comment":"c"})",
      {"7"}, {"x"});
}

TEST(JsonSchema, JsonObjectIsAnyObject) {
  Matches matches([](Grammar& grammar) { return json_object(grammar); });
  for (const char* text : {"{}", R"({"a":[1,{"b":null}]})", "{\n  \"a\": \"\\u00e9\"\n}"})
    EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"[]", "1", "{\"a\"}", "{\"a\":1}}", "{   }"})
    EXPECT_FALSE(matches(text)) << text;
}

}  // namespace
}  // namespace strata
