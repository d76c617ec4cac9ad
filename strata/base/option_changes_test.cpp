#include "strata/base/option_changes.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr const char* kBefore =
    "data: {train: a.txt, numeric: [price, {name: age}]}\n"
    "train:\n  steps: 10\n  optimizer: {kind: adamw}\n  gone: 1\n";

TEST(OptionChanges, ListCommonFieldsWithOtherValuesInOrder) {
  const char* now =
      "train:\n  optimizer: {kind: sgd}\n  steps: 10\n  new: 1\n"
      "data: {numeric: [price], train: b.txt}\n";
  EXPECT_EQ(changed_options(kBefore, now),
            (std::vector<OptionChange>{{"train.optimizer.kind", "adamw", "sgd"},
                                       {"data.numeric", "[price, {name: age}]", "[price]"},
                                       {"data.train", "a.txt", "b.txt"}}));
}

TEST(OptionChanges, CompareListsOfEqualLengthFieldByField) {
  const char* before = "l: [{n: a, w: 8, e: {}}, {n: b, w: 8, e: {o: {x: 1}}}]\nm: [1, 2]\n";
  const char* now = "l: [{n: a, w: 9, e: {s: 2}}, {n: b, w: 8, e: {o: {x: 3}}}]\nm: [1, 3]\n";
  EXPECT_EQ(changed_options(before, now), (std::vector<OptionChange>{{"l[0].w", "8", "9"},
                                                                     {"l[0].e", "{}", "{s: 2}"},
                                                                     {"l[1].e.o.x", "1", "3"},
                                                                     {"m", "[1, 2]", "[1, 3]"}}));
}

TEST(OptionChanges, AreEmptyForSameRecipeInAnotherStyle) {
  EXPECT_TRUE(changed_options(kBefore,
                              "data:\n  train: a.txt\n  numeric:\n    - price\n    - name: age\n"
                              "train: {steps: 10, optimizer: {kind: adamw}}")
                  .empty());
}

TEST(OptionChanges, AreEmptyForTextThatIsNoRecipe) {
  for (const char* text : {"", "a text", "[1, 2]", "{train: [", "train: 5", ",", "{? [a]: 5}"})
    EXPECT_TRUE(changed_options(text, kBefore).empty()) << text;
  for (const char* open : {"[", "{a: ", "- "}) {
    std::string deep = "train: ";
    for (int i = 0; i < 200'000; ++i) deep += open;
    EXPECT_TRUE(changed_options(deep, kBefore).empty()) << open;
  }
}

}  // namespace
}  // namespace strata
