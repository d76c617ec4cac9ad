#include "strata/task/recommender/embedded_rows.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/row_table.h"

namespace strata {
namespace {

SampleBatch two_samples() {
  SampleBatch batch{.samples = 2, .categorical = {{.offsets = {0, 1, 2}, .ids = {4, 9}}}};
  batch.labels = {0, 1};
  return batch;
}

// The last micro-batch of a replica may be padded, in training and in evaluation.
TEST(EmbeddedRows, FillsPaddingWithZeros) {
  const std::vector<FeatureSpec> tables = {{.name = "user", .width = 8}};
  EmbeddedRows rows({.tables = tables, .staleness = {1}, .features = {{.table = 0}}},
                    std::move(make_local_servers({std::make_shared<RowTable>(tables)}, {})[0]),
                    {.seen_after = [](std::int64_t seen) { return seen + 2; },
                     .part = [](std::int64_t) { return two_samples(); }});
  rows.begin(0, 0);
  rows.prefetch(0);
  rows.evaluate(0, two_samples());
  for (const bool training : {true, false}) {
    const at::Tensor out = at::full({5, 8}, std::numeric_limits<double>::quiet_NaN());
    rows.fetch(0, training, out);
    EXPECT_TRUE(out.narrow(0, 0, 2).ne(0).all().item<bool>()) << training;
    EXPECT_TRUE(out.narrow(0, 2, 3).eq(0).all().item<bool>()) << training;
  }
}

}  // namespace
}  // namespace strata
