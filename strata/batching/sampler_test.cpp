#include "strata/batching/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

using Ids = std::vector<std::int64_t>;
using Logits = std::vector<float>;

double uniform_of(std::uint64_t seed, std::uint32_t number) {
  const PhiloxBlock block = philox({number, 0, 0, 2}, {static_cast<std::uint32_t>(seed),
                                                       static_cast<std::uint32_t>(seed >> 32)});
  return (block[0] + 0.5) * 0x1p-32;
}

// Logits after penalties and biases, each token by itself.
Logits adjust_plainly(Logits z, const Sampling& s, const ChoiceContext& context) {
  for (std::int64_t i = 0; i < std::ssize(z); ++i) {
    const auto in_answer = std::ranges::count(context.answer, i);
    double logit = z[i];
    if (in_answer > 0 || (s.repetition_penalty != 1 && std::ranges::count(context.prompt, i) > 0))
      logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
    if (in_answer > 0) logit -= s.presence_penalty + s.frequency_penalty * in_answer;
    z[i] = static_cast<float>(logit);
    if (s.biases.contains(i)) z[i] = static_cast<float>(z[i] + s.biases.at(i));
    const bool allowed =
        context.allowed.empty() ||
        (std::ssize(context.allowed) > i / 64 && (context.allowed[i / 64] >> (i % 64) & 1) != 0);
    if (!allowed || std::ranges::count(context.forbidden, i) > 0) z[i] = kMinusInfinity;
  }
  return z;
}

Ids likeliest_first(const Logits& z) {
  Ids order(z.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order,
                    [&](auto a, auto b) { return std::pair(-z[a], a) < std::pair(-z[b], b); });
  return order;
}

// Sorts all tokens and applies one step after the other, each to the probabilities of the step
// before.
std::int64_t choose_plainly(const Logits& logits, const Sampling& s, const ChoiceContext& context) {
  const Logits z = adjust_plainly(logits, s, context);
  Ids order = likeliest_first(z);
  if (s.temperature == 0) return order[0];
  const double top = z[order[0]];
  const auto weight = [&](std::int64_t i) { return std::exp((z[i] - top) / s.temperature); };
  if (s.top_k > 0 && s.top_k < std::ssize(order)) order.resize(s.top_k);
  double total = 0, sum = 0;
  for (const auto i : order) total += weight(i);
  std::size_t kept = 0;
  while (kept < order.size() && (kept == 0 || s.top_p == 1 || sum < s.top_p * total))
    sum += weight(order[kept++]);
  order.resize(kept);
  std::erase_if(order, [&](std::int64_t i) { return weight(i) < s.min_p; });
  std::ranges::sort(order);
  total = 0;
  for (const auto i : order) total += weight(i);
  double left = uniform_of(s.seed, static_cast<std::uint32_t>(context.answer.size())) * total;
  for (const auto i : order)
    if ((left -= weight(i)) < 0) return i;
  return order.back();
}

Logits random_logits(std::mt19937& random, std::size_t size, bool with_ties) {
  std::normal_distribution<float> normal(0, 3);
  Logits logits(size);
  for (float& logit : logits) logit = with_ties ? std::round(normal(random)) : normal(random);
  return logits;
}

TEST(LogitSampler, EqualsAReferenceThatSortsAllTokens) {
  std::mt19937 random(5);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto pick = [&](std::initializer_list<double> values) {
    return values.begin()[below(values.size())];
  };
  LogitSampler sampler;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t size = 1 + below(round % 20 == 0 ? 1500 : 70);
    Logits logits = random_logits(random, size, below(2) == 0);
    for (float& logit : logits)
      if (below(10) == 0) logit = kMinusInfinity;
    logits[below(size)] = 1;
    Sampling s;
    s.temperature = pick({0, 0.3, 1, 1, 2.5});
    s.top_k = static_cast<std::int64_t>(pick({0, 0, 1, 2, 5, 40, 300, 5000}));
    s.top_p = pick({1, 1, 0, 0.1, 0.5, 0.9, 0.999});
    s.min_p = pick({0, 0, 0.01, 0.3, 1});
    s.presence_penalty = pick({0, 0, -1, 0.7});
    s.frequency_penalty = pick({0, 0, -0.3, 1.1});
    s.repetition_penalty = pick({1, 1, 0.7, 1.3});
    s.seed = below(1u << 31);
    if (below(3) == 0) s.biases = {{below(size), 2.5}, {below(size), -3}};
    Ids prompt(below(20)), answer(below(20)), forbidden(below(2));
    for (Ids* ids : {&prompt, &answer, &forbidden})
      for (auto& id : *ids) id = static_cast<std::int64_t>(below(size));
    std::vector<std::uint64_t> allowed;
    if (below(3) == 0)
      for (std::size_t i = 0; i == 0 || (i < size && below(8) != 0); i += 64)
        allowed.push_back(below(2) == 0 ? ~std::uint64_t{0} : std::uint64_t{random()} << below(32));
    const ChoiceContext context{prompt, answer, allowed, forbidden};
    if (std::ranges::max(adjust_plainly(logits, s, context)) == kMinusInfinity) {
      EXPECT_THROW(sampler.choose(logits, s, context), UserError);
    } else {
      ASSERT_EQ(sampler.choose(logits, s, context), choose_plainly(logits, s, context)) << round;
    }
  }
}

// The sum of squares has the chi-square distribution of 7 degrees of freedom; it is above 40 with a
// chance of 1e-6. Draws are keyed by the number of the token.
double chi_square(const Logits& logits, const Sampling& s, const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  LogitSampler sampler;
  std::vector<int> counts(logits.size());
  const Ids answer(kDraws);
  for (int i = 0; i < kDraws; ++i)
    ++counts[sampler.choose(logits, s, {.answer = std::span(answer).first(i)})];
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = kDraws * expected[i];
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << i;
    } else {
      sum += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
  }
  return sum;
}

// Logits of probabilities 1/16, 2/16, 1/16, 4/16, 4/16, 1/16, 2/16, 1/16.
Logits sixteenths() {
  Logits logits;
  for (const float share : {1, 2, 1, 4, 4, 1, 2, 1}) logits.push_back(std::log(share));
  return logits;
}

TEST(LogitSampler, DrawsTokensAsOftenAsTheirProbabilitiesSay) {
  const Logits z = sixteenths();
  Sampling s;
  s.seed = 77;
  const auto shares = [](std::vector<double> parts) {
    const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
    for (double& part : parts) part /= sum;
    return parts;
  };
  EXPECT_LT(chi_square(z, s, shares({1, 2, 1, 4, 4, 1, 2, 1})), 40);
  s.temperature = 0.5;
  EXPECT_LT(chi_square(z, s, shares({1, 4, 1, 16, 16, 1, 4, 1})), 40);
  s.temperature = 1;
  s.top_k = 3;  // of the two with 2/16 the first
  EXPECT_LT(chi_square(z, s, shares({0, 2, 0, 4, 4, 0, 0, 0})), 40);
  s.top_k = 0;
  s.top_p = 0.55;
  EXPECT_LT(chi_square(z, s, shares({0, 2, 0, 4, 4, 0, 0, 0})), 40);
  s.top_p = 1;
  s.min_p = 0.4;
  EXPECT_LT(chi_square(z, s, shares({0, 2, 0, 4, 4, 0, 2, 0})), 40);
}

TEST(LogitSampler, TakesTheFirstTokenIfAllLogitsAreEqualAndOneStays) {
  const Logits equal(100, -3.5f);
  LogitSampler sampler;
  for (Sampling s : {Sampling{.temperature = 0}, Sampling{.top_k = 1}, Sampling{.top_p = 0}}) {
    s.seed = 9;
    EXPECT_EQ(sampler.choose(equal, s, {}), 0);
  }
}

TEST(LogitSampler, TakesExtremeFields) {
  LogitSampler sampler;
  const Logits z = {1, 3, 2, kMinusInfinity};
  EXPECT_EQ(sampler.choose(z, {.temperature = 1e-310}, {}), 1);
  EXPECT_EQ(sampler.choose(z, {.temperature = 1e-310, .top_p = 0.9}, {}), 1);
  EXPECT_EQ(sampler.choose(z, {.top_k = 1000, .min_p = 1}, {}), 1);
  EXPECT_EQ(sampler.choose(Logits{-4}, {.top_k = 3, .top_p = 0.5, .min_p = 0.5}, {}), 0);
  const Logits apart = {-2000, 0, kMinusInfinity, -1500};
  EXPECT_EQ(sampler.choose(apart, {.temperature = 1}, {}), 1);
  EXPECT_EQ(sampler.choose(apart, {.top_k = 3}, {}), 1);
}

TEST(LogitSampler, KeepsNoHistoryBetweenCalls) {
  LogitSampler sampler;
  const Logits z = {2, 1.9f, 0};
  const Sampling s{.temperature = 0, .frequency_penalty = 0.2, .repetition_penalty = 1.5};
  const Ids history = {0, 0};
  EXPECT_EQ(sampler.choose(z, s, {.answer = history}), 1);
  EXPECT_EQ(sampler.choose(z, s, {.prompt = history}), 1);
  EXPECT_EQ(sampler.choose(z, s, {}), 0);
}

TEST(LogitSampler, RefusesLogitsThatAreNotNumbers) {
  LogitSampler sampler;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, -nan, std::numeric_limits<float>::infinity()}) {
    for (std::size_t place : {0, 7, 33}) {
      Logits z(34, 1);
      z[place] = bad;
      EXPECT_THROW(sampler.choose(z, {.temperature = 0}, {}), UserError);
      EXPECT_THROW(sampler.choose(z, {.top_k = 2}, {}), UserError);
      EXPECT_THROW(score(z, 0, 3), UserError);
      const Ids forbidden = {static_cast<std::int64_t>(place)};
      EXPECT_THROW(sampler.choose(z, {}, {.forbidden = forbidden}), UserError);
    }
  }
  EXPECT_THROW(sampler.choose(Logits(3, kMinusInfinity), {}, {}), UserError);
}

TEST(CheckSampling, RefusesFieldsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NO_THROW(check_sampling({}, 10));
  EXPECT_NO_THROW(check_sampling({.top_k = 11, .biases = {{9, 100}}}, 10));
  for (const Sampling& bad :
       {Sampling{.temperature = -0.1}, Sampling{.temperature = nan}, Sampling{.top_k = -1},
        Sampling{.top_p = 1.01}, Sampling{.top_p = nan}, Sampling{.min_p = -0.01},
        Sampling{.presence_penalty = 2.1}, Sampling{.frequency_penalty = -2.1},
        Sampling{.repetition_penalty = 0}, Sampling{.biases = {{10, 1}}},
        Sampling{.biases = {{-1, 1}}}, Sampling{.biases = {{1, 101}}}})
    EXPECT_THROW(check_sampling(bad, 10), UserError);
}

TEST(Score, EqualsALogSoftmaxInLongDouble) {
  std::mt19937 random(8);
  for (const std::size_t size : {1, 5, 16, 17, 1000, 50257}) {
    const Logits z = random_logits(random, size, size % 2 == 0);
    long double sum = 0;
    const float top = *std::ranges::max_element(z);
    for (const float logit : z) sum += std::exp(static_cast<long double>(logit) - top);
    const auto token = static_cast<std::int64_t>(random() % size);
    const ScoredToken scored = score(z, token, 20);
    EXPECT_EQ(scored.token, token);
    const long double expected = static_cast<long double>(z[token]) - top - std::log(sum);
    EXPECT_NEAR(scored.log_probability, static_cast<double>(expected), 1e-13);
    const Ids order = likeliest_first(z);
    ASSERT_EQ(scored.likeliest.size(), std::min<std::size_t>(20, size));
    for (std::size_t i = 0; i < scored.likeliest.size(); ++i) {
      EXPECT_EQ(scored.likeliest[i].first, order[i]);
      EXPECT_EQ(scored.likeliest[i].second, score(z, order[i], 0).log_probability);
    }
  }
}

TEST(Score, GivesExactLogarithmsOfEqualLogitsAndOfExcludedTokens) {
  EXPECT_NEAR(score(Logits(4096, 12.5f), 77, 0).log_probability, -12 * std::log(2.0), 1e-14);
  EXPECT_EQ(score(Logits{kMinusInfinity, 0, kMinusInfinity}, 1, 0).log_probability, 0);
  EXPECT_EQ(score(Logits{kMinusInfinity, 0, -3}, 0, 0).log_probability, -HUGE_VAL);
  EXPECT_NEAR(score(Logits{0, -1000}, 1, 0).log_probability, -1000, 1e-12);
  EXPECT_THROW(score(Logits{0, 1}, 2, 0), InternalError);
}

}  // namespace
}  // namespace strata
