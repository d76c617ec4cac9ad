// Tests the guarantees of simt.h and simt_vector.h on the machine that this program is compiled
// for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "strata/device/simt/simt.h"
#include "strata/device/simt/simt_math.h"
#include "strata/device/simt/simt_vector.h"

namespace strata::simt {
namespace {

template <typename Body>
void in_both_orders(Body body) {
  for (const HostOrder order : {HostOrder::kAscending, HostOrder::kDescending}) {
    host_order = order;
    body();
  }
  host_order = HostOrder::kAscending;
}

// Writes a neighbour's element in one phase and reads its own in the next.
struct Rotate {
  static constexpr int kThreads = 64;
  struct Shared {
    float values[kThreads];
  };
  const float* x;
  float* y;

  void operator()(Block<kThreads>& block, Shared& shared) const {
    auto kept = block.per_thread(0.0f);
    block.each([&](int thread) {
      kept[thread] = x[block.index() * kThreads + thread];
      shared.values[(thread + 1) % kThreads] = kept[thread];
    });
    block.each([&](int thread) {
      y[block.index() * kThreads + thread] = shared.values[thread] - 2 * kept[thread];
    });
  }
};

TEST(Simt, PhasesSeeWhatEarlierOnesShared) {
  std::vector<float> x(3 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  in_both_orders([&] {
    std::vector<float> y(x.size(), -1);
    launch(Rotate{x.data(), y.data()}, 3, nullptr);
    for (int i = 0; i < 3 * 64; ++i) {
      const int left = i / 64 * 64 + (i + 63) % 64;
      EXPECT_EQ(y[i], x[left] - 2 * x[i]) << i;
    }
  });
}

// Rotate without the wait between its phases.
struct RotateInOnePhase {
  static constexpr int kThreads = 64;
  using Shared = Rotate::Shared;
  const float* x;
  float* y;

  void operator()(Block<kThreads>& block, Shared& shared) const {
    block.each([&](int thread) {
      shared.values[(thread + 1) % kThreads] = x[thread];
      y[thread] = shared.values[thread];
    });
  }
};

TEST(Simt, AMissingPhaseShowsAsNaNsInEitherOrder) {
  const std::vector<float> x(64, 1.0f);
  in_both_orders([&] {
    std::vector<float> y(64, 0);
    launch(RotateInOnePhase{x.data(), y.data()}, 1, nullptr);
    int nans = 0;
    for (const float value : y) nans += std::isnan(value) ? 1 : 0;
    EXPECT_GT(nans, 0);
  });
}

template <int kCount>
struct SumOfBlock {
  static constexpr int kThreads = kCount;
  const float* x;
  float* sum;
  float* most;

  void operator()(Block<kThreads>& block) const {
    auto values = block.per_thread(0.0f);
    block.each([&](int thread) { values[thread] = x[block.index() * kThreads + thread]; });
    const float total = block.sum(values);
    const float largest = block.reduce(values, [](float a, float b) { return std::max(a, b); });
    block.each([&](int thread) {
      if (thread != 0) return;
      sum[block.index()] = total;
      most[block.index()] = largest;
    });
  }
};

// Combines halves of a warp, quarters and so on, then the warps.
float tree(std::vector<float> values) {
  for (std::size_t width = values.size() / 2; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) values[i] += values[i + width];
  return values[0];
}

template <int kThreads>
void expect_tree() {
  std::mt19937 random(kThreads);
  std::normal_distribution<float> normal(0, 1);
  constexpr int kBlocks = 5;
  std::vector<float> x(kThreads * kBlocks);
  for (float& value : x) value = normal(random);
  in_both_orders([&] {
    std::vector<float> sums(kBlocks, NAN), most(kBlocks, NAN);
    launch(SumOfBlock<kThreads>{x.data(), sums.data(), most.data()}, kBlocks, nullptr);
    for (int block = 0; block < kBlocks; ++block) {
      const float* at = x.data() + block * kThreads;
      std::vector<float> warps;
      for (int warp = 0; warp < kThreads / 32; ++warp)
        warps.push_back(tree(std::vector<float>(at + warp * 32, at + warp * 32 + 32)));
      EXPECT_EQ(sums[block], tree(warps));
      EXPECT_EQ(most[block], *std::max_element(at, at + kThreads));
    }
  });
}

TEST(Simt, ReducesInTheOrderOfTheTree) {
  expect_tree<32>();
  expect_tree<64>();
  expect_tree<256>();
  expect_tree<1024>();
}

TEST(Simt, RunsNothingForZeroBlocks) {
  launch(SumOfBlock<32>{nullptr, nullptr, nullptr}, 0, nullptr);
  EXPECT_EQ(blocks_for(0, 8), 0);
  EXPECT_EQ(blocks_for(8, 8), 1);
  EXPECT_EQ(blocks_for(9, 8), 2);
}

template <typename T>
void expect_whole_and_partial_moves() {
  constexpr int kCount = kWide<T>;
  // Also one element off the border: there elements move one by one.
  for (int offset = 0; offset < 2; ++offset) {
    for (int left = 1; left <= kCount + 1; ++left) {
      alignas(16) T from[2 * kCount + 2], to[2 * kCount + 2];
      for (int i = 0; i < 2 * kCount + 2; ++i) {
        narrow(static_cast<float>(i + 1), from[i]);
        narrow(-7.0f, to[i]);
      }
      const auto values = load<kCount>(from + offset, left);
      store(values, to + offset, left);
      for (int i = 0; i < kCount; ++i)
        EXPECT_EQ(values[i], i < left ? static_cast<float>(offset + i + 1) : 0.0f);
      for (int i = 0; i < 2 * kCount + 2; ++i) {
        const bool written = i >= offset && i < offset + std::min(left, kCount);
        EXPECT_EQ(widen(to[i]), written ? static_cast<float>(i + 1) : -7.0f) << i << " " << left;
      }
    }
  }
}

TEST(SimtVector, MovesNoMoreThanIsLeft) {
  expect_whole_and_partial_moves<float>();
  expect_whole_and_partial_moves<Bf16>();
  expect_whole_and_partial_moves<Fp16>();
}

// Every 16-bit number converts back; a value between two rounds to the nearer one, or on a tie to
// the even one.
template <typename T>
void expect_nearest_even(std::uint16_t infinity) {
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    T here, next;
    here.bits = static_cast<std::uint16_t>(bits);
    next.bits = static_cast<std::uint16_t>(bits + 1);
    const float low = widen(here);
    const auto rounds_to = [&](float x, std::uint32_t expected) {
      T result;
      narrow(x, result);
      if (result.bits != expected) ADD_FAILURE() << x << " becomes " << result.bits;
      narrow(-x, result);
      if (result.bits != (expected | 0x8000u)) ADD_FAILURE() << -x << " becomes " << result.bits;
    };
    rounds_to(low, bits);
    if (bits + 1 == infinity) continue;
    const float middle = low + (widen(next) - low) / 2;
    rounds_to(middle, bits % 2 == 0 ? bits : bits + 1);
    rounds_to(std::nextafter(middle, 0.0f), bits);
    rounds_to(std::nextafter(middle, std::numeric_limits<float>::infinity()), bits + 1);
    if (testing::Test::HasFailure()) return;
  }
  T result;
  narrow(std::numeric_limits<float>::infinity(), result);
  EXPECT_EQ(result.bits, infinity);
  narrow(std::numeric_limits<float>::max(), result);
  EXPECT_EQ(result.bits, infinity);
  narrow(std::nanf(""), result);
  EXPECT_TRUE(std::isnan(widen(result)));
}

TEST(SimtVector, RoundsToNearestEven) {
  expect_nearest_even<Bf16>(0x7F80);
  expect_nearest_even<Fp16>(0x7C00);
}

TEST(SimtVector, ExponentialIsAccurate) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < 0x42B17218u; bits += 97) {  // up to 88.72
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float x = bits_as<float>(bits | sign);
      const double exact = std::exp(static_cast<double>(x));
      if (x > 88.37f) continue;
      if (x < -87.3f) {
        ASSERT_EQ(simt::exp(x), 0.0f);
        continue;
      }
      const auto rounded = static_cast<float>(exact);
      const double ulp = std::nextafter(rounded, HUGE_VALF) - rounded;
      worst = std::max(worst, std::abs(simt::exp(x) - exact) / ulp);
    }
  }
  EXPECT_LT(worst, 1.2);
  EXPECT_EQ(simt::exp(0.0f), 1.0f);
  EXPECT_EQ(simt::exp(-HUGE_VALF), 0.0f);
  EXPECT_TRUE(std::isnan(simt::exp(std::nanf(""))));
}

}  // namespace
}  // namespace strata::simt
