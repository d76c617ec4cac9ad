#include "strata/base/user_text.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Quote, WritesBytesThatAreNotUtf8AsEscapes) {
  EXPECT_EQ(quote("gr\xF6\xDF"
                  "e"),
            "'gr\\xf6\\xdfe'");
  EXPECT_EQ(quote("größe\n\x7F"), "'größe\\n\\x7f'");
}

TEST(EditDistance, CountsSingleChanges) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("width", "width"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("width", "widths"), 1u);  // insertion
  EXPECT_EQ(edit_distance("width", "wdth"), 1u);    // deletion
  EXPECT_EQ(edit_distance("width", "wigth"), 1u);   // replacement
  EXPECT_EQ(edit_distance("width", "widht"), 1u);   // swap of neighbours
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, FindsMisspeltName) {
  const std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved"};
  EXPECT_EQ(nearest_name("1f1", schedules), "1f1b");
  EXPECT_EQ(nearest_name("gppie", schedules), "gpipe");
  EXPECT_EQ(nearest_name("interleave", schedules), "interleaved");
}

TEST(NearestName, DoesNotGuessWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("zigzag", {"gpipe", "1f1b"}), "");
  EXPECT_EQ(nearest_name("x", {"y"}), "");
  EXPECT_EQ(nearest_name("gpipe", {}), "");
  EXPECT_EQ(nearest_name("gpu", {"auto", "cpu", "cuda"}), "cuda") << "though 'cpu' is nearer";
  EXPECT_EQ(nearest_name("gpu", {"auto", "cpu"}), "cpu");
}

TEST(NearestPath, PrefersTheSameSection) {
  EXPECT_EQ(nearest_path("train.kind", {"model.kind", "train.kinds"}), "train.kinds");
  EXPECT_EQ(nearest_path("model.widht", {"train.width", "model.width"}), "model.width");
}

TEST(NearestPath, FindsTheNameInAnotherSection) {
  EXPECT_EQ(nearest_path("train.layers", {"train.steps", "model.layers"}), "model.layers");
  EXPECT_EQ(nearest_path("pp", {"mesh.pp", "train.clip"}), "mesh.pp");
  EXPECT_EQ(nearest_path("train.lr", {"train.clip", "train.optimizer.learning_rate"}),
            "train.optimizer.learning_rate");
}

TEST(NearestPath, ChoosesTheNearestOfSeveralSections) {
  EXPECT_EQ(nearest_path("modle.kind", {"train.optimizer.kind", "model.kind"}), "model.kind");
}

}  // namespace
}  // namespace strata
