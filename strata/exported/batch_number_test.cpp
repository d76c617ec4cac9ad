#include "strata/exported/batch_number.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata {
namespace {

std::optional<BatchNumber> read(const std::string& text, std::string symbol = "s7") {
  return read_batch_number(text, symbol);
}

const std::string kSymbol = "Symbol('s7', positive=True, integer=True)";

TEST(BatchNumbers, AreMultiplesOfTheSamples) {
  EXPECT_EQ(read(kSymbol), (BatchNumber{.per_sample = 1}));
  EXPECT_EQ(read("Integer(-3)"), (BatchNumber{.constant = -3}));
  EXPECT_EQ(read("Mul(Integer(4), " + kSymbol + ")"), (BatchNumber{.per_sample = 4}));
  EXPECT_EQ(read("Add(Mul(Integer(2), " + kSymbol + ", Integer(5)), Integer(1))"),
            (BatchNumber{.per_sample = 10, .constant = 1}));
  EXPECT_EQ((BatchNumber{.per_sample = 10, .constant = 1}).at(3), 31);
}

TEST(BatchNumbers, TakeTheFirstSymbol) {
  std::string symbol;
  EXPECT_EQ(read_batch_number(kSymbol, symbol), (BatchNumber{.per_sample = 1}));
  EXPECT_EQ(symbol, "s7");
  EXPECT_EQ(read_batch_number("Symbol('s8', integer=True)", symbol), std::nullopt);
}

TEST(BatchNumbers, RefuseOtherTexts) {
  const std::vector<std::string> texts = {"",
                                          "4",
                                          "Integer(",
                                          "Integer(4",
                                          "Integer(x)",
                                          "Integer(4))",
                                          "Symbol('s7",
                                          "Symbol('s7'",
                                          "Mul(" + kSymbol + ", " + kSymbol + ")",
                                          "Pow(" + kSymbol + ", Integer(2))",
                                          "Integer(99999999999999)",
                                          "Mul(Integer(1099511627776), Integer(1099511627776))",
                                          "Mul()"};
  for (const std::string& text : texts) EXPECT_EQ(read(text), std::nullopt) << text;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "Add(";
  EXPECT_EQ(read(deep + "Integer(1)"), std::nullopt);
}

}  // namespace
}  // namespace strata
