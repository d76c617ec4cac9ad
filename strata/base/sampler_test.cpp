#include "strata/base/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::vector<std::int64_t> epoch_of(const Sampler& sampler, std::int64_t count, std::int64_t epoch) {
  std::vector<std::int64_t> samples(count);
  for (std::int64_t i = 0; i < count; ++i) samples[i] = sampler.at(epoch * count + i);
  return samples;
}

TEST(Sampler, VisitsEverySampleOnceAnEpoch) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    const Sampler sampler(count, true, 1);
    std::vector<std::int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::int64_t> samples = epoch_of(sampler, count, epoch);
      std::ranges::sort(samples);
      EXPECT_EQ(samples, all) << count << " samples, epoch " << epoch;
    }
  }
}

TEST(Sampler, OrdersEveryEpochAnew) {
  const Sampler sampler(100, true, 1);
  EXPECT_NE(epoch_of(sampler, 100, 0), epoch_of(sampler, 100, 1));
  EXPECT_NE(epoch_of(sampler, 100, 1), epoch_of(sampler, 100, 2));
  EXPECT_EQ(sampler.epoch(99), 0);
  EXPECT_EQ(sampler.epoch(100), 1);
}

TEST(Sampler, FollowsTheSeed) {
  EXPECT_EQ(epoch_of(Sampler(100, true, 1), 100, 0), epoch_of(Sampler(100, true, 1), 100, 0));
  EXPECT_NE(epoch_of(Sampler(100, true, 1), 100, 0), epoch_of(Sampler(100, true, 2), 100, 0));
}

TEST(Sampler, KeepsFileOrderWithoutShuffle) {
  const Sampler sampler(10, false, 1);
  for (std::int64_t k = 0; k < 30; ++k) EXPECT_EQ(sampler.at(k), k % 10);
}

TEST(Sampler, PutsEverySampleAtEveryPlaceAboutEquallyOften) {
  constexpr std::int64_t kCount = 10, kEpochs = 5000;
  const Sampler sampler(kCount, true, 1);
  for (const std::int64_t place : {0, 4, 9}) {
    std::vector<int> visits(kCount);
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      ++visits[sampler.at(epoch * kCount + place)];
    }
    // 500 expected, standard deviation 21.
    for (const int count : visits) EXPECT_NEAR(count, 500, 110);
  }
}

TEST(Sampler, SeparatesNeighbours) {
  const Sampler sampler(1000, true, 1);
  const std::vector<std::int64_t> samples = epoch_of(sampler, 1000, 0);
  int neighbours = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) neighbours += samples[i] == samples[i - 1] + 1;
  EXPECT_LT(neighbours, 8);  // 1 expected in a random order
}

TEST(Sampler, WorksOnMoreSamplesThanMemoryHolds) {
  constexpr std::int64_t kCount = 1'000'000'000'007;
  const Sampler sampler(kCount, true, 1);
  std::set<std::int64_t> seen;
  for (std::int64_t k = 3 * kCount; k < 3 * kCount + 1000; ++k) {
    const std::int64_t found = sampler.at(k);
    EXPECT_TRUE(found >= 0 && found < kCount && seen.insert(found).second);
  }
}

TEST(Sampler, RefusesNoSamples) { EXPECT_THROW(Sampler(0, true, 1), InternalError); }

// Checkpoints of earlier versions resume with this order.
TEST(Sampler, KeepsOrderOfEarlierVersions) {
  const Sampler sampler(10, true, 1);
  EXPECT_EQ(epoch_of(sampler, 10, 0), (std::vector<std::int64_t>{7, 8, 4, 9, 2, 1, 6, 0, 3, 5}));
}

TEST(Permutation, IsBijectiveForEveryKey) {
  const Permutation permutation(1000);
  std::vector<std::int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  for (const std::uint64_t key : {0, 1, 2}) {
    std::vector<std::int64_t> places(1000);
    for (std::int64_t i = 0; i < 1000; ++i) places[i] = permutation.at(i, key);
    EXPECT_NE(places, all);
    std::ranges::sort(places);
    EXPECT_EQ(places, all);
  }
  EXPECT_THROW(permutation.at(1000, 1), InternalError);
}

}  // namespace
}  // namespace strata
