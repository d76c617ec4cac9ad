#include "strata/base/error_source.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

constexpr ErrorSource kErrors{"base.test", "mend it"};

void expect_text(const Error& error, ErrorKind kind, const std::string& fix) {
  EXPECT_EQ(error.kind(), kind);
  EXPECT_EQ(error.text().operation, "base.test");
  EXPECT_EQ(error.text().where, "a place");
  EXPECT_EQ(error.text().what, "what broke");
  EXPECT_EQ(error.text().expected, "one");
  EXPECT_EQ(error.text().got, "two");
  EXPECT_EQ(error.text().fix, fix);
}

TEST(ErrorSource, PutsEachArgumentIntoItsLineOfAnErrorOfEachKind) {
  expect_text(kErrors.user("a place", "what broke", "one", "two", "replace it"), ErrorKind::kUser,
              "replace it");
  expect_text(kErrors.system("a place", "what broke", "one", "two", "replace it"),
              ErrorKind::kSystem, "replace it");
  expect_text(kErrors.internal("a place", "what broke", "one", "two"), ErrorKind::kInternal,
              "mend it");
}

TEST(ErrorSource, GivesItsFixToAnErrorWithoutOne) {
  expect_text(kErrors.user("a place", "what broke", "one", "two"), ErrorKind::kUser, "mend it");
  expect_text(kErrors.system("a place", "what broke", "one", "two"), ErrorKind::kSystem, "mend it");
}

}  // namespace
}  // namespace strata
