#include "strata/plan/search/recompute_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strata {
namespace {

// A rank holds the saved bytes of its layers that are not recomputed.
struct Ranks {
  CostTable costs;
  std::vector<int> rank_of_layer;

  void add(int rank, std::int64_t saved_bytes, double forward_seconds, bool recomputable = true) {
    costs.layers.push_back({.forward_seconds = forward_seconds,
                            .saved_bytes = saved_bytes,
                            .recomputable = recomputable});
    rank_of_layer.push_back(rank);
  }
  Ledger ledger(const LayerSet& recompute) const {
    Ledger ledger(*std::max_element(rank_of_layer.begin(), rank_of_layer.end()) + 1);
    for (std::size_t l = 0; l < rank_of_layer.size(); ++l) {
      if (!recompute.has(static_cast<int>(l)))
        ledger[rank_of_layer[l]].peak_bytes += costs.layers[l].saved_bytes;
    }
    return ledger;
  }
  LayerSet choose(std::int64_t device_bytes) const {
    return choose_recompute(costs, rank_of_layer, device_bytes,
                            [&](const LayerSet& recompute) { return ledger(recompute); });
  }
};

TEST(RecomputeChoice, RecomputesNothingIfItFits) {
  Ranks ranks;
  ranks.add(0, 100, 1);
  EXPECT_EQ(ranks.choose(100), (LayerSet{}));
}

TEST(RecomputeChoice, PrefersLayersThatFreeMostPerSecond) {
  Ranks ranks;
  ranks.add(0, 100, 4);
  ranks.add(0, 100, 1);
  ranks.add(0, 100, 2);
  EXPECT_EQ(ranks.choose(200), (LayerSet{1}));
  EXPECT_EQ(ranks.choose(150), (LayerSet{1, 2}));
}

TEST(RecomputeChoice, PrefersEarlierOfEqualLayers) {
  Ranks ranks;
  for (int l = 0; l < 3; ++l) ranks.add(0, 100, 1);
  EXPECT_EQ(ranks.choose(200), (LayerSet{0}));
}

TEST(RecomputeChoice, RemovesMemberThatLaterOneMadeUnnecessary) {
  Ranks ranks;
  ranks.add(0, 10, 0.01);  // frees most per second, but too little
  ranks.add(0, 100, 1);
  EXPECT_EQ(ranks.choose(15), (LayerSet{1}));
}

TEST(RecomputeChoice, SkipsRanksThatFit) {
  Ranks ranks;
  ranks.add(0, 100, 1);
  ranks.add(0, 100, 1);
  ranks.add(1, 90, 1);
  EXPECT_EQ(ranks.choose(100), (LayerSet{0}));
}

TEST(RecomputeChoice, SkipsLayersThatFreeNothing) {
  Ranks ranks;
  ranks.add(0, 100, 1, /*recomputable=*/false);
  ranks.add(0, 0, 1);
  ranks.add(0, 50, 1);
  EXPECT_EQ(ranks.choose(10), (LayerSet{2}));  // does not fit with any choice
}

TEST(RecomputeChoice, HasNoUnnecessaryMember) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> draw(1, 20);
  for (int trial = 0; trial < 100; ++trial) {
    Ranks ranks;
    for (int l = 0; l < 12; ++l) ranks.add(l / 4, draw(random), draw(random));
    const std::int64_t device_bytes = 2 * draw(random);
    LayerSet chosen = ranks.choose(device_bytes);
    ASSERT_LE(peak_bytes(ranks.ledger(chosen)), device_bytes);
    for (const int l : chosen.layers()) {
      chosen.remove(l);
      EXPECT_GT(peak_bytes(ranks.ledger(chosen)), device_bytes) << "layer " << l;
      chosen.add(l);
    }
  }
}

// With more members than are tested one by one, runs of equal ones are tested; the result is
// equally good and needs far fewer ledgers.
TEST(RecomputeChoice, HasNoUnnecessaryMemberAmongManyEqualLayers) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> draw(1, 20);
  for (int trial = 0; trial < 20; ++trial) {
    Ranks ranks;
    for (int rank = 0; rank < 2; ++rank) {
      for (int run = 0; run < 4; ++run) {
        const std::int64_t saved_bytes = draw(random);
        const double seconds = draw(random);
        for (int l = 0; l < 100; ++l) ranks.add(rank, saved_bytes, seconds);
      }
    }
    const std::int64_t device_bytes = 100 * draw(random);
    int ledgers = 0;
    LayerSet chosen = choose_recompute(ranks.costs, ranks.rank_of_layer, device_bytes,
                                       [&](const LayerSet& recompute) {
                                         ++ledgers;
                                         return ranks.ledger(recompute);
                                       });
    EXPECT_LT(ledgers, 60);
    ASSERT_LE(peak_bytes(ranks.ledger(chosen)), device_bytes);
    for (const int l : chosen.layers()) {
      chosen.remove(l);
      const Ledger without = ranks.ledger(chosen);
      EXPECT_GT(without[ranks.rank_of_layer[l]].peak_bytes, device_bytes) << "layer " << l;
      chosen.add(l);
    }
  }
}

}  // namespace
}  // namespace strata
