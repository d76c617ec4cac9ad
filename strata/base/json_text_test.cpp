#include "strata/base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace strata {
namespace {

TEST(JsonText, ReplacesInvalidUtf8) {
  const std::string path = "a/d\xffsk/\xe4\xf6", kept = "a/d\uFFFDsk/\uFFFD\uFFFD";
  EXPECT_EQ(through_json(path), kept);
  EXPECT_EQ(through_json(kept), kept);
  EXPECT_EQ(through_json("plain, \"quoted\"\n\u00E4"), "plain, \"quoted\"\n\u00E4");
  const nlohmann::json json = {{"path", path}};
  EXPECT_EQ(nlohmann::json::parse(json_text(json)).at("path"), kept);
  EXPECT_EQ(json_text(json, 1), "{\n \"path\": \"" + kept + "\"\n}");
}

}  // namespace
}  // namespace strata
