#include "strata/batching/wait_prediction.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "strata/batching/batch_scheduler.h"

namespace strata {
namespace {

using Starts = std::vector<std::int64_t>;
using Demands = std::vector<SequenceDemand>;

TEST(PredictStarts, StartsAtOnceWhatFits) {
  EXPECT_EQ(predict_starts({10, 4, 100}, {}, Demands{{3, 10, 5}, {3, 10, 5}, {4, 10, 5}}),
            (Starts{0, 0, 0}));
}

TEST(PredictStarts, WaitsForPagesInTheOrderOfTheQueue) {
  // 10 pages; the running ones end after passes 4 and 9.
  const Demands running = {{5, 0, 4}, {5, 0, 9}};
  EXPECT_EQ(predict_starts({10, 8, 100}, running, Demands{{5, 0, 2}, {5, 0, 1}, {10, 0, 1}}),
            (Starts{4, 6, 9}));
  EXPECT_EQ(predict_starts({10, 8, 100}, running, Demands{{10, 0, 1}, {1, 0, 1}}), (Starts{9, 10}));
}

TEST(PredictStarts, WaitsForOneOfTheSequencesToEnd) {
  EXPECT_EQ(predict_starts({100, 2, 100}, Demands{{1, 0, 3}, {1, 0, 7}}, Demands(3, {1, 0, 2})),
            (Starts{3, 5, 7}));
}

TEST(PredictStarts, WaitsForThePromptsBefore) {
  // 100 prompt tokens of 10 a pass take 10 passes; the next prompt shares the last one of 95.
  EXPECT_EQ(predict_starts({100, 9, 10}, Demands{{1, 95, 50}}, Demands{{1, 10, 1}, {1, 10, 1}}),
            (Starts{9, 10}));
}

TEST(PredictStarts, TakesMoreDemandsThanPages) {
  EXPECT_EQ(predict_starts({4, 9, 10}, Demands{{4, 0, 3}, {4, 0, 5}}, Demands{{4, 0, 1}}),
            (Starts{5}));
}

// Serves random sequences, all of which generate their last possible token.
TEST(PredictStarts, IsNeverEarlierThanTheScheduler) {
  std::mt19937 random(4);
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random() % limit);
  };
  std::int64_t predicted = 0, real = 0;
  for (int round = 0; round < 500; ++round) {
    BatchLimits limits;
    limits.pages = 12 + below(20);
    limits.page_tokens = 4;
    limits.context = 48;
    limits.sequences = 1 + below(5);
    limits.pass_tokens = limits.pass_logits = limits.sequences + below(20);
    limits.reuse_pages = false;
    BatchScheduler scheduler(limits);
    Demands demands;
    std::map<std::uint64_t, std::int64_t> starts;
    for (int i = 0; i < 12; ++i) {
      const std::int64_t prompt = 1 + below(30), answer = 1 + below(17);
      scheduler.add({std::vector<std::int64_t>(prompt), answer});
      demands.push_back({scheduler.pool().pages_for(prompt + answer), prompt, answer});
    }
    for (std::int64_t pass = 0; !scheduler.empty(); ++pass) {
      for (const BatchRow& row : scheduler.next_pass().rows) {
        starts.emplace(row.id, pass);
        if (row.chooses && !scheduler.advance(row.id, 1)) scheduler.finish(row.id);
      }
    }
    const Starts expected = predict_starts(
        {limits.pages, limits.sequences, limits.pass_tokens - (limits.sequences - 1)}, {}, demands);
    for (const auto& [id, pass] : starts) {
      EXPECT_LE(pass, expected[id - 1]) << "round " << round << " id " << id;
      predicted += expected[id - 1];
      real += pass;
    }
  }
  EXPECT_LT(predicted, 2 * real);
}

}  // namespace
}  // namespace strata
