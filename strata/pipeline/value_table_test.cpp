#include "strata/pipeline/value_table.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

TEST(GradientTable, SumsInDescendingConsumerOrderForAnyArrival) {
  const Value value{.name = "x", .producer = 0, .consumers = {1, 2, 3}};
  // In fp32, (1e8 - 1e8) + 1 = 1, while (1e8 + 1) - 1e8 = 0, so the order shows.
  GradientTable table;
  table.put(0, 1, 0, at::full({1}, 1.0f));
  table.put(0, 3, 0, at::full({1}, 1e8f));
  table.put(0, 2, 0, at::full({1}, -1e8f));
  EXPECT_EQ(table.take_sum(value, 0, 0).item<float>(), 1.0f);
  EXPECT_TRUE(table.empty());
}

TEST(GradientTable, DoesNotWriteToSharedGradients) {
  const Value value{.name = "x", .producer = 0, .consumers = {1, 2}};
  const at::Tensor first = at::full({1}, 1.0f), second = at::full({1}, 2.0f);
  GradientTable table;
  table.put(0, 1, 0, first);
  table.put(0, 2, 0, second);
  EXPECT_EQ(table.take_sum(value, 0, 0).item<float>(), 3.0f);
  EXPECT_EQ(first.item<float>(), 1.0f);
  EXPECT_EQ(second.item<float>(), 2.0f);
}

TEST(GradientTable, SumOfUnreadValueIsUndefined) {
  GradientTable table;
  EXPECT_FALSE(table.take_sum({.name = "loss", .producer = 0}, 0, 0).defined());
}

TEST(GradientTable, RejectsMissingAndDuplicateGradients) {
  GradientTable table;
  EXPECT_THROW(table.take(0, 1, 0), InternalError);
  table.put(0, 1, 0, at::full({1}, 1.0f));
  EXPECT_THROW(table.put(0, 1, 0, at::full({1}, 1.0f)), InternalError);
}

}  // namespace
}  // namespace strata
