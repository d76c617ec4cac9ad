#include "strata/base/errors.h"

#include "strata/base/user_text.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

namespace strata {
namespace {

TEST(Error, HasOneShape) {
  const UserError error({.operation = "plan.partition",
                         .where = "rank 2 (pp 2/4)",
                         .what = "more stages than layers",
                         .expected = "at most 3 stages",
                         .got = "4",
                         .fix = "set mesh.pp to 3"});
  EXPECT_STREQ(error.what(),
               "[plan.partition] rank 2 (pp 2/4): more stages than layers\n"
               "  expected  at most 3 stages\n"
               "  got       4\n"
               "  fix       set mesh.pp to 3");
}

TEST(Error, LeavesOutEmptyParts) {
  const SystemError error({.operation = "comm.receive",
                           .where = "",
                           .what = "the peer is gone",
                           .expected = "",
                           .got = "",
                           .fix = "read rank 1's log first"});
  EXPECT_STREQ(error.what(),
               "[comm.receive] the peer is gone\n  fix       read rank 1's log first");
}

TEST(Error, IndentsTheFurtherLinesOfAPart) {
  const InternalError error({.operation = "schedule.check",
                             .where = "",
                             .what = "deadlock",
                             .expected = "",
                             .got = "F0 F1\n.  F0",
                             .fix = ""});
  EXPECT_STREQ(error.what(), "[schedule.check] deadlock\n  got       F0 F1\n            .  F0");
}

TEST(Error, KeepsItsKindAndPartsWhenCaughtAsTheBase) {
  try {
    throw SystemError({"tier.read", "disk 0", "cannot read", "4 KiB", "0 B", "check the disk"});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.text().where, "disk 0");
    EXPECT_EQ(error.text().got, "0 B");
  }
}

TEST(Error, GivesEveryKindItsExitCode) {
  EXPECT_EQ(exit_code(UserError({})), 2);
  EXPECT_EQ(exit_code(SystemError({})), 3);
  EXPECT_EQ(exit_code(InternalError({})), 4);
  EXPECT_EQ(exit_code(std::runtime_error("surprise")), 4);
}

TEST(Check, PassesInSilence) {
  EXPECT_NO_THROW(STRATA_CHECK(1 + 1 == 2, "base.test"));
  EXPECT_NO_THROW(STRATA_CHECK_EQ(1 + 1, 2, "base.test"));
}

TEST(Check, NamesTheConditionAndThePlaceInTheRepository) {
  try {
    STRATA_CHECK(1 + 1 == 3, "base.test");
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().operation, "base.test");
    EXPECT_TRUE(error.text().where.starts_with("strata/base/errors_test.cpp:"));
    EXPECT_NE(error.text().what.find("1 + 1 == 3"), std::string::npos);
  }
}

TEST(Check, PrintsBothValuesOfAnEquality) {
  const int layers = 5;
  try {
    STRATA_CHECK_EQ(layers, 6, "base.test");
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(error.text().what.find("layers == 6"), std::string::npos);
    EXPECT_EQ(error.text().got, "5 against 6");
  }
}

TEST(Check, EvaluatesItsOperandsOnce) {
  int calls = 0;
  STRATA_CHECK_EQ(++calls, 1, "base.test");
  EXPECT_EQ(calls, 1);
}

TEST(Quote, IsOneLineOfAtMost80Bytes) {
  EXPECT_EQ(quote("steps"), "'steps'");
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("a\nb\tc\x1b"), "'a\\nb\\x09c\\x1b'");
  EXPECT_EQ(quote(std::string(78, 'x')), "'" + std::string(78, 'x') + "'");
  for (const std::size_t length : {79u, 80u, 81u, 1000u, 1'000'000u}) {
    const std::string text = quote(std::string(length, 'x'));
    EXPECT_LE(text.size(), kLongestQuotation);
    EXPECT_TRUE(text.ends_with("...' (" + std::to_string(length) + " bytes)")) << text;
  }
  EXPECT_LE(quote(std::string(60, '\x01')).size(), kLongestQuotation);
}

TEST(Quote, CutsBetweenCharacters) {
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\u00e4";
  const std::string text = quote(umlauts);
  EXPECT_EQ(text.find("...") % 2, 1u);  // after the quotation mark, two bytes each
  EXPECT_EQ(beginning("a\u00e4", 2), "a");
}

TEST(Error, CutsOverlongLines) {
  const std::string megabyte(1'000'000, 'x');
  const UserError error({.operation = "base.test",
                         .where = megabyte,
                         .what = megabyte,
                         .expected = megabyte,
                         .got = "table\n" + megabyte + "\nend",
                         .fix = megabyte});
  EXPECT_LT(std::string(error.what()).size(), 6000u);
  EXPECT_TRUE(error.text().got.starts_with("table\nxxx"));
  EXPECT_TRUE(error.text().got.ends_with("... (1000000 bytes)\nend"));
  const std::string grid(500, 'F');
  EXPECT_EQ(UserError({.what = "w", .got = "rank 0:\n" + grid}).text().got, "rank 0:\n" + grid);
}

}  // namespace
}  // namespace strata
