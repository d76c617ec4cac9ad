#include "strata/plan/search/recompute_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <string>

#include "strata/plan/search/recompute_steps.h"

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
    return choose_recompute(costs, Recompute::kCheap, rank_of_layer, device_bytes,
                            [&](const RecomputeChoice& choice) { return ledger(choice.whole); })
        .whole;
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
    LayerSet chosen =
        choose_recompute(ranks.costs, Recompute::kCheap, ranks.rank_of_layer, device_bytes,
                         [&](const RecomputeChoice& choice) {
                           ++ledgers;
                           return ranks.ledger(choice.whole);
                         })
            .whole;
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

// One layer per rank, with a table a level: bytes that remain saved and seconds that it takes.
struct Ways {
  std::int64_t cheap, products, attention;
  double products_seconds, attention_seconds, whole_seconds;
};

LevelCosts levels_of(const std::vector<Ways>& layers) {
  LevelCosts costs;
  for (const Ways& layer : layers) {
    const auto add = [&](Recompute level, std::int64_t saved, double seconds) {
      costs[level].layers.push_back({.forward_seconds = layer.whole_seconds,
                                     .backward_seconds = 2 * layer.whole_seconds + seconds,
                                     .saved_bytes = saved});
    };
    add(Recompute::kCheap, layer.cheap, 0);
    add(Recompute::kProducts, layer.products, layer.products_seconds);
    add(Recompute::kAttention, layer.attention, layer.attention_seconds);
  }
  return costs;
}

TEST(RecomputeSteps, AreTheLowerHullOfBytesAndSeconds) {
  const auto names_of = [](const Ways& layer) {
    std::string names;
    for (const RecomputeStep& step : recompute_steps(levels_of({layer}), Recompute::kCheap, 0))
      names += step.whole ? "whole " : std::string(name_of(step.level)) + " ";
    return names;
  };
  // Seconds per byte: 1, 2, 3.
  EXPECT_EQ(names_of({90, 60, 30, 30, 90, 180}), "products attention whole ");
  // A level that costs more a byte than the next one is left out.
  EXPECT_EQ(names_of({90, 60, 30, 60, 90, 180}), "attention whole ");
  // Nor do levels count if the whole layer is cheaper a byte.
  EXPECT_EQ(names_of({90, 60, 30, 60, 90, 85}), "whole ");
  // A level that frees nothing.
  EXPECT_EQ(names_of({90, 90, 30, 0, 90, 180}), "attention whole ");
  // A level that was measured as faster than the base.
  EXPECT_EQ(names_of({90, 60, 30, -5, 60, 180}), "products attention whole ");
  EXPECT_EQ(names_of({0, 0, 0, 0, 0, 1}), "");
}

TEST(RecomputeSteps, LackTheWholeLayerIfItFreesNothing) {
  LevelCosts costs = levels_of({{90, 60, 30, 30, 90, 180}});
  for (CostTable& table : costs)
    for (LayerCost& layer : table.layers) layer.recomputable = false;
  const auto steps = recompute_steps(costs, Recompute::kCheap, 0);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[1].level, Recompute::kAttention);
  EXPECT_EQ(recompute_steps(costs, Recompute::kProducts, 0).size(), 1u);
}

struct Sum {
  std::int64_t bytes = 0;
  double seconds = 0;
};

// What all layers save, and take more than at the cheap level.
Sum sum_of(const LevelCosts& costs, const RecomputeChoice& choice) {
  Sum sum;
  for (int l = 0; l < std::ssize(costs[Recompute::kCheap].layers); ++l) {
    const LayerCost& base = costs[Recompute::kCheap].layers[l];
    const LayerCost& cost = costs[choice.levels.of(l)].layers[l];
    if (choice.whole.has(l)) {
      EXPECT_EQ(choice.levels.of(l), choice.levels.base());
      sum.seconds += base.forward_seconds;
    } else {
      sum.bytes += cost.saved_bytes;
      sum.seconds += cost.backward_seconds - base.backward_seconds;
    }
  }
  return sum;
}

struct Fewest {
  double seconds = INFINITY, of_whole_layers = INFINITY;
};

// The fewest seconds of all choices that fit, and of those without levels.
Fewest fewest_seconds(const LevelCosts& costs, int layers, std::int64_t budget) {
  Fewest fewest;
  for (int code = 0; code < 1 << (2 * layers); ++code) {
    RecomputeChoice choice;
    for (int l = 0; l < layers; ++l) {
      const int way = code >> (2 * l) & 3;
      if (way == 3) choice.whole.add(l);
      if (way == 1) choice.levels.set(l, Recompute::kProducts);
      if (way == 2) choice.levels.set(l, Recompute::kAttention);
    }
    const Sum sum = sum_of(costs, choice);
    if (sum.bytes > budget) continue;
    fewest.seconds = std::min(fewest.seconds, sum.seconds);
    if (choice.levels.other_layers().empty())
      fewest.of_whole_layers = std::min(fewest.of_whole_layers, sum.seconds);
  }
  return fewest;
}

// Taking back any layer's last step breaks the budget.
void expect_no_unnecessary_step(const LevelCosts& costs, const RecomputeChoice& chosen, int layers,
                                std::int64_t budget) {
  for (int l = 0; l < layers; ++l) {
    const auto steps = recompute_steps(costs, Recompute::kCheap, l);
    RecomputeChoice less = chosen;
    less.whole.remove(l);
    less.levels.set(l, Recompute::kCheap);
    if (chosen == less) continue;
    const auto last = std::ranges::find_if(steps, [&](const RecomputeStep& step) {
      return step.whole == chosen.whole.has(l) && step.level == chosen.levels.of(l);
    });
    ASSERT_NE(last, steps.end()) << "layer " << l << " takes a step that is not on the hull";
    if (last != steps.begin()) less.levels.set(l, std::prev(last)->level);
    EXPECT_GT(sum_of(costs, less).bytes, budget) << "layer " << l;
  }
}

TEST(RecomputeChoice, LevelsAreCloseToTheBestOfAllChoices) {
  std::mt19937 random(11);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr int kLayers = 5;
  double found = 0, best = 0, only_whole = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Ways> layers;
    for (int l = 0; l < kLayers; ++l) {
      const int whole = draw(20, 40), products = draw(5, whole), attention = draw(products, whole);
      layers.push_back({.cheap = draw(60, 90),
                        .products = draw(30, 50),
                        .attention = draw(5, 29),
                        .products_seconds = static_cast<double>(products),
                        .attention_seconds = static_cast<double>(attention),
                        .whole_seconds = static_cast<double>(whole)});
    }
    const LevelCosts costs = levels_of(layers);
    const std::int64_t budget = draw(20, 300);
    const RecomputeChoice chosen =
        choose_recompute(costs, Recompute::kCheap, std::vector<int>(kLayers), budget,
                         [&](const RecomputeChoice& choice) {
                           return Ledger{{.peak_bytes = sum_of(costs, choice).bytes}};
                         });
    const Sum sum = sum_of(costs, chosen);
    const Fewest fewest = fewest_seconds(costs, kLayers, budget);
    ASSERT_LE(sum.bytes, budget);
    EXPECT_LE(sum.seconds, 2 * fewest.seconds);
    expect_no_unnecessary_step(costs, chosen, kLayers, budget);
    found += sum.seconds;
    best += fewest.seconds;
    only_whole += fewest.of_whole_layers;
  }
  EXPECT_LT(found, 1.1 * best);
  EXPECT_LT(found, 0.9 * only_whole);  // levels are worth it
}

TEST(RecomputeChoice, StartsFromTheModesLevel) {
  const LevelCosts costs = levels_of({{90, 60, 30, 30, 90, 180}});
  const auto chosen = [&](std::int64_t budget) {
    return choose_recompute(costs, Recompute::kProducts, {0}, budget,
                            [&](const RecomputeChoice& choice) {
                              return Ledger{{.peak_bytes = sum_of(costs, choice).bytes}};
                            });
  };
  EXPECT_EQ(chosen(60).levels, RecomputeLevels(Recompute::kProducts));
  EXPECT_TRUE(chosen(60).empty());
  EXPECT_EQ(chosen(59).levels.base(), Recompute::kProducts);
  EXPECT_EQ(chosen(59).levels.of(0), Recompute::kAttention);
}

// A whole layer that runs again makes all that it saves at once, deep levels only some of it: three
// layers fit with levels alone.
TEST(RecomputeChoice, LeavesOutWholeLayersThatNeedMoreAtOnce) {
  const LevelCosts costs =
      levels_of({{9, 2, 1, 7, 9, 30}, {9, 2, 1, 7, 9, 30}, {9, 2, 1, 7, 9, 30}});
  const auto peak = [&](const RecomputeChoice& choice) {
    std::int64_t saved = 0, most = 0;
    for (int l = 0; l < 3; ++l) {
      if (!choice.whole.has(l)) saved += costs[choice.levels.of(l)].layers[l].saved_bytes;
      most = std::max<std::int64_t>(most, choice.whole.has(l) ? 16 : 11);
    }
    return saved + most;
  };
  const RecomputeChoice chosen = choose_recompute(
      costs, Recompute::kCheap, {0, 0, 0}, 14,
      [&](const RecomputeChoice& choice) { return Ledger{{.peak_bytes = peak(choice)}}; });
  EXPECT_EQ(peak(chosen), 14);
  EXPECT_TRUE(chosen.whole.empty());
  EXPECT_EQ(chosen, deepest_levels(costs, Recompute::kCheap));
}

TEST(RecomputeLevels, AreEqualIfAllLayersAre) {
  RecomputeLevels levels;
  levels.set(5, Recompute::kAttention);
  levels.set(2, Recompute::kProducts);
  EXPECT_EQ(levels.of(5), Recompute::kAttention);
  EXPECT_EQ(levels.of(3), Recompute::kCheap);
  EXPECT_EQ(levels.of(99), Recompute::kCheap);
  EXPECT_EQ(levels.other_layers(), (std::vector<int>{2, 5}));
  levels.set(5, Recompute::kCheap);
  levels.set(2, Recompute::kCheap);
  EXPECT_EQ(levels, RecomputeLevels());
  EXPECT_NE(RecomputeLevels(Recompute::kNone), RecomputeLevels());
}

}  // namespace
}  // namespace strata
