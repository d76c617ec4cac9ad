#include "strata/http/http_target.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(HttpTarget, SplitsPathAndQuery) {
  const auto split = [](const std::string& target) {
    HttpRequest request;
    split_target(target, request);
    return request.path + " and " + request.query;
  };
  EXPECT_EQ(split("/a/b?c=1?2"), "/a/b and c=1?2");
  EXPECT_EQ(split("/a"), "/a and ");
  EXPECT_EQ(split("/a?"), "/a and ");
  EXPECT_EQ(split("http://host:80/a?b"), "/a and b");
  EXPECT_EQ(split("https://host?b"), " and b");
  EXPECT_EQ(split("http://host"), " and ");
}

TEST(HttpTarget, DecodesEscapes) {
  EXPECT_EQ(percent_decoded("a%41%2f%e2%82%ac+"), "aA/\u20ac+");
  EXPECT_EQ(percent_decoded(""), "");
  for (const char* broken : {"%", "%4", "a%4", "%g1", "%1g", "%00", "%ff", "%c0%ae", "%-1"})
    EXPECT_EQ(percent_decoded(broken), std::nullopt) << broken;
}

TEST(HttpTarget, SplitsPathIntoDecodedSegments) {
  using Segments = std::vector<std::string>;
  EXPECT_EQ(path_segments("/"), (Segments{""}));
  EXPECT_EQ(path_segments("/v1/models/a%2Fb"), (Segments{"v1", "models", "a/b"}));
  EXPECT_EQ(path_segments("//a/"), (Segments{"", "a", ""}));
  for (const char* malformed : {"", "a", "*", "/%0a", "/%7F", "/a/%"})
    EXPECT_EQ(path_segments(malformed), std::nullopt) << malformed;
}

TEST(HttpTarget, DecodesFieldsOfQuery) {
  EXPECT_EQ(query_fields("a=1&b=x+%26&&c&=d&a=2"),
            (HttpFields{{"a", "1"}, {"b", "x &"}, {"c", ""}, {"", "d"}, {"a", "2"}}));
  EXPECT_EQ(query_fields(""), HttpFields{});
  EXPECT_EQ(query_fields("a=%"), std::nullopt);
  EXPECT_EQ(query_fields("%00=1"), std::nullopt);
}

TEST(HttpTarget, RefusesNamesThatLeaveTheirFolder) {
  for (const char* plain : {"model", "org/model", "...", "a.b", "..a"})
    EXPECT_TRUE(is_plain_name(plain)) << plain;
  for (const char* other : {"", ".", "..", "../a", "a/..", "a/../b", "/a", "a/", "a//b", "..\\a"})
    EXPECT_FALSE(is_plain_name(other)) << other;
}

}  // namespace
}  // namespace strata
