// The oracle computes each element with the operations of rounded_floats_test.h. It uses neither
// vectors nor Highway nor ATen.
#include "strata/optim/update_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "strata/base/every_target_test.h"
#include "strata/device/thread_pool.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/rounded_floats_test.h"

namespace strata::kernels {
namespace {

// ---- 16-bit formats, from their definitions

struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int infinity() const { return ((1 << exponent_bits) - 1) << mantissa_bits; }
};
constexpr Format kBf16{8, 7}, kFp16{5, 10};

Format format_of(Element element) { return element == Element::kBf16 ? kBf16 : kFp16; }

// The magnitudes of codes up to infinity's, which counts as the next power of two.
double magnitude_of(Format format, int code) {
  const int exponent = code >> format.mantissa_bits, mantissa = code % (1 << format.mantissa_bits);
  const int shift = -format.bias() - format.mantissa_bits;
  if (exponent == 0) return std::ldexp(mantissa, shift + 1);
  return std::ldexp(mantissa + (1 << format.mantissa_bits), exponent + shift);
}

float widened(Format format, std::uint16_t bits) {
  const int code = bits & 0x7FFF;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (code > format.infinity()) return std::numeric_limits<float>::quiet_NaN();
  if (code == format.infinity()) return sign * std::numeric_limits<float>::infinity();
  return sign * static_cast<float>(magnitude_of(format, code));
}

enum class Ties : std::uint8_t { kToEven, kAway };

std::uint16_t nearest(Format format, float value, Ties ties) {
  if (std::isnan(value))
    return static_cast<std::uint16_t>(format.infinity() | format.infinity() >> 1);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  int low = 0, high = format.infinity();  // magnitude_of(low) <= magnitude, or infinity
  if (magnitude >= magnitude_of(format, high)) return static_cast<std::uint16_t>(sign | high);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (magnitude_of(format, middle) <= magnitude ? low : high) = middle;
  }
  const double down = magnitude - magnitude_of(format, low);
  const double up = magnitude_of(format, high) - magnitude;
  const bool rises = up < down || (up == down && (ties == Ties::kAway || low % 2 == 1));
  return static_cast<std::uint16_t>(sign | (rises ? high : low));
}

// ---- A step of one element

struct One {
  float weight, gradient, slots[2];
};

One stepped(const UpdateStep& s, One x, bool decayed) {
  float& w = x.weight;
  float g = times(x.gradient, s.gradient_factor);
  if (s.rule == UpdateRule::kAdamW) {
    auto& [m, v] = x.slots;
    m = plus(times(s.mean_kept, m), times(s.mean_share, g));
    v = plus(times(s.square_kept, v), times(times(s.square_share, g), g));
    const float divisor = plus(times(root(v), s.root_scale), s.epsilon);
    w = minus(decayed ? times(w, s.kept) : w, over(times(s.size, m), divisor));
    return x;
  }
  if (decayed && s.penalty != 0) g = plus(g, times(s.penalty, w));
  float& slot = x.slots[0];
  if (s.rule == UpdateRule::kSgd) w = minus(w, times(s.size, g));
  if (s.rule == UpdateRule::kSgdMomentum) {
    slot = plus(times(s.momentum, slot), g);
    w = minus(w, times(s.size, slot));
  }
  if (s.rule == UpdateRule::kAdagrad) {
    slot = plus(slot, times(g, g));
    w = minus(w, over(times(s.size, g), plus(root(slot), s.epsilon)));
  }
  return x;
}

// ---- The arrays of an update, in each form

enum class Form : std::uint8_t { kFp32, kBf16Copy, kFp16Copy, kSplit };

struct Case {
  UpdateRule rule;
  Form form;
  Element gradient;
};

constexpr UpdateRule kRules[] = {UpdateRule::kAdamW, UpdateRule::kSgd, UpdateRule::kSgdMomentum,
                                 UpdateRule::kAdagrad};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const UpdateRule rule : kRules)
    for (const Form form : {Form::kFp32, Form::kBf16Copy, Form::kFp16Copy, Form::kSplit})
      for (const Element gradient : {Element::kFp32, Element::kBf16, Element::kFp16})
        cases.push_back({rule, form, gradient});
  return cases;
}

std::string text_of(const Case& c) {
  return "rule " + std::to_string(static_cast<int>(c.rule)) + ", form " +
         std::to_string(static_cast<int>(c.form)) + ", gradients " +
         std::to_string(static_cast<int>(c.gradient));
}

struct State {
  std::vector<float> weights, gradients, slots[2];
  std::vector<std::uint16_t> narrow_gradients, rounded, high, low;
  std::int64_t decay_numel = 0;

  std::int64_t numel() const { return static_cast<std::int64_t>(weights.size()); }

  UpdateArrays arrays(const Case& c) {
    UpdateArrays a{.gradients = c.gradient == Element::kFp32
                                    ? static_cast<const void*>(gradients.data())
                                    : narrow_gradients.data(),
                   .gradient_element = c.gradient,
                   .decay_numel = decay_numel};
    for (int i = 0; i < num_slots(c.rule); ++i) a.slots[i] = slots[i].data();
    if (c.form == Form::kSplit) {
      a.split = {high.data(), low.data()};
    } else {
      a.weights = weights.data();
    }
    if (c.form == Form::kBf16Copy || c.form == Form::kFp16Copy) {
      a.rounded = rounded.data();
      a.rounded_element = c.form == Form::kBf16Copy ? Element::kBf16 : Element::kFp16;
    }
    return a;
  }

  float gradient(const Case& c, std::int64_t i) const {
    return c.gradient == Element::kFp32 ? gradients[i]
                                        : widened(format_of(c.gradient), narrow_gradients[i]);
  }

  // The bits after the update; all NaNs count as equal.
  std::vector<std::uint32_t> bits(const Case& c) const {
    std::vector<float> joined = weights;
    if (c.form == Form::kSplit)
      join_weights(
          {const_cast<std::uint16_t*>(high.data()), const_cast<std::uint16_t*>(low.data())},
          joined.data(), numel());
    std::vector<std::uint32_t> all;
    for (const auto& values : {joined, slots[0], slots[1]})
      for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
    for (const auto& values : {rounded, high, low})
      all.insert(all.end(), values.begin(), values.end());
    return all;
  }
};

// `wild`: random bits, so all magnitudes, denormals, infinities and NaNs; else values as in a run.
State random_state(std::int64_t numel, bool wild, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto value = [&](float size) {
    return wild ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
                : size * normal(random);
  };
  State s;
  s.decay_numel = numel * 2 / 3;
  for (std::int64_t i = 0; i < numel; ++i) {
    s.weights.push_back(value(0.02f));
    s.gradients.push_back(value(1e-3f));
    s.slots[0].push_back(value(1e-3f));
    s.slots[1].push_back(std::abs(value(1e-6f)));
    s.narrow_gradients.push_back(static_cast<std::uint16_t>(wild ? random() : random() & 0xBFFFu));
  }
  for (const float weight : s.weights) {  // split weights store every NaN with the same bits
    const std::uint32_t bits = bits_of(weight);
    s.high.push_back(static_cast<std::uint16_t>((bits + 0x8000u) >> 16));
    s.low.push_back(static_cast<std::uint16_t>(bits));
  }
  s.rounded.assign(numel, 0x1234);
  return s;
}

UpdateStep step_of(UpdateRule rule, float factor = 0.3f) {
  OptimizerOptions options{.kind = OptimizerKind::kSgd, .weight_decay = 0.1};
  if (rule == UpdateRule::kAdamW) options.kind = OptimizerKind::kAdamW;
  if (rule == UpdateRule::kAdagrad) options.kind = OptimizerKind::kAdagrad;
  if (rule == UpdateRule::kSgd) options.momentum = 0;
  UpdateStep step = update_step(options, 3, 0.01);
  step.gradient_factor = factor;
  EXPECT_EQ(step.rule, rule);
  return step;
}

void expect_oracle(const Case& c, const UpdateStep& step, const State& before, const State& after) {
  std::vector<float> joined = after.weights;
  for (std::int64_t i = 0; i < before.numel(); ++i) {
    const One one = stepped(
        step, {before.weights[i], before.gradient(c, i), {before.slots[0][i], before.slots[1][i]}},
        i < before.decay_numel);
    const std::uint32_t expected = bits_of(one.weight);
    if (c.form == Form::kSplit) {
      const std::uint16_t high = nearest(kBf16, one.weight, Ties::kAway);
      ASSERT_EQ(after.high[i], high) << i;
      ASSERT_EQ(after.low[i], expected & 0xFFFFu) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(after.weights[i]), expected) << i;
    }
    if (c.form == Form::kBf16Copy) {
      ASSERT_EQ(after.rounded[i], nearest(kBf16, one.weight, Ties::kToEven)) << i << one.weight;
    } else if (c.form == Form::kFp16Copy) {
      ASSERT_EQ(after.rounded[i], nearest(kFp16, one.weight, Ties::kToEven)) << i << one.weight;
    }
    for (int slot = 0; slot < num_slots(c.rule); ++slot)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(after.slots[slot][i]), bits_of(one.slots[slot])) << i;
  }
}

TEST(UpdateKernels, EqualElementwiseReferenceOnEveryInstructionSet) {
  EXPECT_GE(hwy::SupportedAndGeneratedTargets().size(), 2u);
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(text_of(c));
    for (const bool wild : {false, true}) {
      for (const float factor : {1.0f, 0.3f, 0x1p-16f, 0x1p-140f, 3e38f, 0.0f}) {
        SCOPED_TRACE(factor);
        const State before = random_state(2003, wild);
        const UpdateStep step = step_of(c.rule, factor);
        on_every_target([&] {
          State after = before;
          update(step, after.arrays(c), {0, after.numel()});
          expect_oracle(c, step, before, after);
        });
      }
    }
  }
}

TEST(UpdateKernels, WriteOnlyTheirRange) {
  constexpr std::int64_t kMost = 70, kNumel = kMost + 40;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(text_of(c));
    const UpdateStep step = step_of(c.rule);
    State before = random_state(kNumel, false);
    State whole = before;
    on_every_target([&] {
      for (std::int64_t begin = 0; begin < 3; ++begin) {
        for (std::int64_t length = 0; length <= kMost; ++length) {
          before.decay_numel = whole.decay_numel = length / 2;
          State all = before, part = before;
          update(step, all.arrays(c), {0, kNumel});
          update(step, part.arrays(c), {begin, begin + length});
          State expected = before;
          const auto take = [&](auto& to, const auto& from) {
            if (!from.empty()) std::copy_n(from.begin() + begin, length, to.begin() + begin);
          };
          take(expected.weights, all.weights);
          take(expected.rounded, all.rounded);
          take(expected.high, all.high);
          take(expected.low, all.low);
          for (int slot = 0; slot < 2; ++slot) take(expected.slots[slot], all.slots[slot]);
          ASSERT_EQ(part.bits(c), expected.bits(c)) << begin << " " << length;
        }
      }
    });
  }
}

TEST(UpdateKernels, AreIndependentOfCutsAndThreads) {
  constexpr std::int64_t kNumel = 300001;
  std::mt19937 random(3);
  for (const Case& c : all_cases()) {
    if (c.gradient == Element::kFp16) continue;
    SCOPED_TRACE(text_of(c));
    const UpdateStep step = step_of(c.rule);
    const State before = random_state(kNumel, true);
    State whole = before;
    update(step, whole.arrays(c), {0, kNumel});
    const auto expected = whole.bits(c);

    State cut = before;
    std::vector<std::int64_t> cuts = {0, kNumel, cut.decay_numel - 1};
    for (int i = 0; i < 40; ++i) cuts.push_back(random() % kNumel);
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      update(step, cut.arrays(c), {cuts[i], cuts[i + 1]});
    EXPECT_TRUE(cut.bits(c) == expected);

    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const ThreadPoolScope scope(pool);
      State shared = before;
      update_on_threads(step, shared.arrays(c), kNumel);
      EXPECT_TRUE(shared.bits(c) == expected) << threads;
    }
  }
}

// Long ranges write the copy around the cache where its alignment allows it.
TEST(UpdateKernels, LongRangesHaveBitsOfShortRanges) {
  constexpr std::int64_t kNumel = (5 << 20) + 1037, kGuard = 64;
  const Case c{UpdateRule::kAdamW, Form::kBf16Copy, Element::kBf16};
  State before = random_state(1 << 16, true);
  const auto repeat = [&](auto& values) {
    const auto first = values;
    while (values.size() < kNumel + kGuard) values.insert(values.end(), first.begin(), first.end());
  };
  for (auto* values : {&before.weights, &before.slots[0], &before.slots[1]}) repeat(*values);
  for (auto* values : {&before.narrow_gradients, &before.rounded}) repeat(*values);
  const UpdateStep step = step_of(c.rule);
  for (const std::int64_t line_offset : {0, 5}) {  // aligned for stream stores, or not
    before.decay_numel = 1 << 20;
    State expected = before;
    for (std::int64_t begin = 0; begin < kNumel; begin += 1 << 20)
      update(step, expected.arrays(c), {begin, std::min<std::int64_t>(begin + (1 << 20), kNumel)});
    on_every_target([&] {
      State long_range = before;
      const auto address = reinterpret_cast<std::uintptr_t>(long_range.rounded.data());
      const auto begin = static_cast<std::int64_t>(64 - address % 64) / 2 + line_offset;
      update(step, long_range.arrays(c), {0, begin});
      update(step, long_range.arrays(c), {begin, begin + (1 << 20)});
      update(step, long_range.arrays(c), {begin + (1 << 20), kNumel});
      EXPECT_TRUE(long_range.rounded == expected.rounded);  // and nothing after its end
      EXPECT_EQ(std::memcmp(long_range.weights.data(), expected.weights.data(), kNumel * 4), 0);
    });
  }
}

TEST(SplitWeights, LoseNoBitAndRoundUpperHalf) {
  // All upper halves, with the lower halves around both edges.
  std::vector<float> weights;
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0x0u, 0x1u, 0x5555u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      weights.push_back(std::bit_cast<float>(high << 16 | low));
  weights.push_back(1.0f);  // not a multiple of the vector length
  const auto n = static_cast<std::int64_t>(weights.size());
  on_every_target([&] {
    std::vector<std::uint16_t> high(n, 1), low(n, 1);
    std::vector<float> joined(n, 1);
    split_weights(weights.data(), {high.data(), low.data()}, n);
    join_weights({high.data(), low.data()}, joined.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(joined[i]), bits_of(weights[i])) << i;
      ASSERT_EQ(high[i], nearest(kBf16, weights[i], Ties::kAway)) << weights[i];
      const bool tie = (bits_of(weights[i]) & 0xFFFFu) == 0x8000u;
      if (!tie) {
        ASSERT_EQ(high[i], nearest(kBf16, weights[i], Ties::kToEven)) << weights[i];
      }
    }
  });
}

// Enough steps for the halves to carry and borrow, from values near 0.
TEST(SplitWeights, TrainToBitsOfFp32Weights) {
  constexpr std::int64_t kNumel = 4099;
  for (const UpdateRule rule : kRules) {
    State s = random_state(kNumel, false);
    State t = s;
    for (int i = 1; i <= 200; ++i) {
      const UpdateStep step = step_of(rule, 0.01f);
      s.narrow_gradients = t.narrow_gradients = random_state(kNumel, false, i).narrow_gradients;
      update(step, s.arrays({rule, Form::kSplit, Element::kBf16}), {0, kNumel});
      update(step, t.arrays({rule, Form::kFp32, Element::kBf16}), {0, kNumel});
    }
    std::vector<float> joined(kNumel);
    join_weights({s.high.data(), s.low.data()}, joined.data(), kNumel);
    EXPECT_EQ(std::memcmp(joined.data(), t.weights.data(), kNumel * sizeof(float)), 0);
    for (int slot = 0; slot < num_slots(rule); ++slot)
      EXPECT_EQ(std::memcmp(s.slots[slot].data(), t.slots[slot].data(), kNumel * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace strata::kernels
