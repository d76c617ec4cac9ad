#include "strata/embed/wire/question.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using Words = std::vector<std::string>;

TEST(Question, IsMadeOfWordsBetweenBlanks) {
  EXPECT_EQ(words_of_question("rows user  42 43 "), (Words{"rows", "user", "42", "43"}));
  EXPECT_TRUE(words_of_question("").empty());
}

TEST(Question, TakesAnyNameInQuotationMarks) {
  for (const std::string name : {"user", "user id", "größe", "a\"b\\c d", " padded ", "", "\""})
    EXPECT_EQ(words_of_question("row " + word_of_name(name) + " 42"), (Words{"row", name, "42"}));
}

}  // namespace
}  // namespace strata
