#include "strata/base/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>

namespace strata {
namespace {

// The three published known-answer vectors of Philox4x32 with 10 rounds (Random123,
// tests/kat_vectors): all zeros, all ones, the digits of pi.
TEST(Philox, GivesThePublishedAnswers) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

int changed_bits(const PhiloxBlock& a, const PhiloxBlock& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) bits += std::popcount(a[i] ^ b[i]);
  return bits;
}

// 128 fair coins: fewer than 30 or more than 98 heads has a chance below 1e-9.
TEST(Philox, AnyBitOfCounterOrKeyChangesAboutHalfOfTheOutput) {
  const PhiloxBlock base = philox({1, 2, 3, 4}, {5, 6});
  for (int bit = 0; bit < 128; ++bit) {
    PhiloxBlock counter = {1, 2, 3, 4};
    counter[bit / 32] ^= std::uint32_t{1} << (bit % 32);
    const int bits = changed_bits(base, philox(counter, {5, 6}));
    EXPECT_GT(bits, 30) << bit;
    EXPECT_LT(bits, 98) << bit;
  }
  for (int bit = 0; bit < 64; ++bit) {
    std::array<std::uint32_t, 2> key = {5, 6};
    key[bit / 32] ^= std::uint32_t{1} << (bit % 32);
    const int bits = changed_bits(base, philox({1, 2, 3, 4}, key));
    EXPECT_GT(bits, 30) << bit;
    EXPECT_LT(bits, 98) << bit;
  }
}

TEST(MixKey, DependsOnTheOrderAndOnBothWords) {
  EXPECT_NE(mix_key(1, 2), mix_key(2, 1));
  EXPECT_NE(mix_key(1, 2), mix_key(1, 3));
  EXPECT_NE(mix_key(1, 2), mix_key(3, 2));
  EXPECT_EQ(mix_key(1, 2), mix_key(1, 2));
}

TEST(MixKey, KeepsSmallIndicesApart) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t a = 0; a < 200; ++a) {
    for (std::uint64_t b = 0; b < 200; ++b) keys.insert(mix_key(a, b));
  }
  EXPECT_EQ(keys.size(), 40000u);
}

}  // namespace
}  // namespace strata
