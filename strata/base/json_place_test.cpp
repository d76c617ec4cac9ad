#include "strata/base/json_place.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata {
namespace {

std::string place(std::string_view text, const std::vector<std::string>& keys) {
  return json_place(text, keys);
}

TEST(JsonPlace, IsLineAndColumnOfTheValue) {
  EXPECT_EQ(place(R"({"a": 1})", {"a"}), ":1:7");
  EXPECT_EQ(place("{\n  \"a\": 1,\n  \"b\" :\n\t2\n}", {"b"}), ":4:2");
  EXPECT_EQ(place(" {\"a\": 1}", {}), ":1:2");
}

TEST(JsonPlace, IgnoresTextThatLooksLikeTheKey) {
  const char* text = R"({
  "x": {"a": 1, "b": [{"a": 2}, "}"]},
  "y": "a",
  "q\": 0, \"a": "\\",
  "list": ["a", 3],
  "a": true
})";
  EXPECT_EQ(place(text, {"a"}), ":6:8");
  EXPECT_EQ(place(text, {"x", "a"}), ":2:14");
  EXPECT_EQ(place(text, {"x", "b"}), ":2:22");
  EXPECT_EQ(place(text, {"list"}), ":5:11");
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"z"}, {"x", "y"}, {"y", "a"}, {"list", "a"}, {"a", "a"}})
    EXPECT_EQ(place(text, keys), "");
}

TEST(JsonPlace, FindsLastOfDuplicateKeys) {
  EXPECT_EQ(place(R"({"a": 1, "a": [2, 3]})", {"a"}), ":1:15");
}

TEST(JsonPlace, AcceptsTruncatedText) {
  const std::string text = R"({"a": {"b": "c\"d"}})";
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_NO_THROW(place(text.substr(0, size), {"a", "b"}));
}

}  // namespace
}  // namespace strata
