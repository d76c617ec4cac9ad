#include "strata/batching/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr ErrorSource kSamplingErrors{"batching.sampling"};
constexpr ErrorSource kLogitErrors{"batching.logits", "check the model's weights"};
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Loops over vectors of this many elements; a fixed number, because it decides the order of sums.
constexpr std::size_t kLanes = 16;

void check_range(const char* field, double value, double least, double most) {
  if (value >= least && value <= most) return;
  std::ostringstream expected, got;
  expected << least << " to " << most;
  got << value;
  throw kSamplingErrors.user(field, "the value is out of range", expected.str(), got.str(),
                             "change it");
}

// NaN and +infinity are refused.
void check_finite(std::span<const float> logits) {
  const auto valid = [](float logit) { return logit <= std::numeric_limits<float>::max(); };
  bool all = true;
  for (const float logit : logits) all &= valid(logit);
  if (all) return;
  const auto bad = std::ranges::find_if_not(logits, valid);
  throw kLogitErrors.user("token " + std::to_string(bad - logits.begin()),
                          "a logit is not a finite number", "a finite number or -inf",
                          std::to_string(*bad));
}

// The largest logit of those that check_finite accepts. Refuses logits that exclude all tokens.
float largest(std::span<const float> logits) {
  check_finite(logits);
  float tops[kLanes];
  std::ranges::fill(tops, kExcluded);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      tops[lane] = logits[i + lane] > tops[lane] ? logits[i + lane] : tops[lane];
  for (; i < logits.size(); ++i) tops[0] = std::max(tops[0], logits[i]);
  const float top = *std::ranges::max_element(tops);
  if (top == kExcluded)
    throw kLogitErrors.user("", "no token may follow", "a token that is allowed and has a logit",
                            "none", "allow more tokens");
  return top;
}

// 1/13!, 1/12!, ..., 1/1!, 1/0!
constexpr auto kTaylor = [] {
  std::array<double, 14> terms = {};
  double factorial = 1;
  for (std::size_t i = 0; i < terms.size(); factorial *= static_cast<double>(++i))
    terms[terms.size() - 1 - i] = 1 / factorial;
  return terms;
}();

// exp(x) for x <= 0, by a polynomial of degree 13 on [-log(2)/2, log(2)/2] and a power of two. The
// relative error is below 1e-15; below -700 the result is 0. Compilers vectorize its loops.
[[gnu::always_inline]] inline double exp_of(double x) {
  constexpr double kShift = 0x1.8p52;  // adding it rounds to an integer, which the low bits hold
  const double shifted = x * 1.44269504088896338700 + kShift;
  const double power = shifted - kShift;
  // log(2) in two parts: the product with the first is exact.
  const double r = (x - power * 6.93147180369123816490e-01) - power * 1.90821492927058770002e-10;
  double p = kTaylor[0];
  for (std::size_t i = 1; i < kTaylor.size(); ++i) p = p * r + kTaylor[i];
  const double result = std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) +
                                              (std::bit_cast<std::uint64_t>(shifted) << 52));
  return x >= -700 ? result : 0;
}

// The body of weigh().
[[gnu::always_inline]] inline double weigh_lanes(std::span<const float> logits, float top,
                                                 double scale, std::span<double> weights) {
  double sums[kLanes] = {};
  double lanes[kLanes];
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const std::size_t count = std::min(kLanes, logits.size() - i);
    if (count == kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] = exp_of((double{logits[i + lane]} - top) * scale);
    } else {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] = lane < count ? exp_of((double{logits[i + lane]} - top) * scale) : 0;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += lanes[lane];
    if (!weights.empty()) std::copy_n(lanes, count, weights.begin() + i);
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

#ifdef __x86_64__
// Wider vectors without fused operations: the same bits, in half the time.
[[gnu::target("avx2")]] double weigh_avx2(std::span<const float> logits, float top, double scale,
                                          std::span<double> weights) {
  return weigh_lanes(logits, top, scale, weights);
}
#endif

// Fills `weights`, if there are any, with exp((logit - top) * scale), and returns their sum: one
// sum a lane, then the lanes in order.
double weigh(std::span<const float> logits, float top, double scale, std::span<double> weights) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return weigh_avx2(logits, top, scale, weights);
#endif
  return weigh_lanes(logits, top, scale, weights);
}

// Orders tokens by falling logits; ties by token.
struct Likelier {
  std::span<const float> logits;
  bool operator()(std::int64_t a, std::int64_t b) const {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  }
};

// Fills `tokens` with the `count` likeliest ones, the likeliest first.
void select_likeliest(std::span<const float> logits, std::size_t count,
                      std::vector<std::int64_t>& tokens) {
  const Likelier likelier{logits};
  tokens.resize(std::min(count, logits.size()));
  if (tokens.empty()) return;
  std::iota(tokens.begin(), tokens.end(), 0);
  std::ranges::make_heap(tokens, likelier);  // the least likely one is in front
  float least = logits[tokens.front()];
  for (std::size_t i = tokens.size(); i < logits.size(); ++i) {
    if (logits[i] <= least) continue;  // a later token of equal logit is less likely
    std::ranges::pop_heap(tokens, likelier);
    tokens.back() = static_cast<std::int64_t>(i);
    std::ranges::push_heap(tokens, likelier);
    least = logits[tokens.front()];
  }
  std::ranges::sort_heap(tokens, likelier);
}

// Fills `tokens` with the `count` likeliest ones, ascending.
void select_set(std::span<const float> logits, std::int64_t count,
                std::vector<std::int64_t>& tokens) {
  constexpr std::int64_t kSmall = 256;  // the heap is faster
  if (count <= kSmall) {
    select_likeliest(logits, count, tokens);
    std::ranges::sort(tokens);
    return;
  }
  tokens.resize(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (count == std::ssize(logits)) return;
  std::ranges::nth_element(tokens, tokens.begin() + count, Likelier{logits});
  tokens.resize(count);
  std::ranges::sort(tokens);
}

// A number in (0, 1) of the token `number` of an answer.
double uniform(std::uint64_t seed, std::size_t number) {
  const PhiloxBlock block =
      philox({static_cast<std::uint32_t>(number), 0, 0, 2},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (block[0] + 0.5) * 0x1p-32;
}

}  // namespace

void check_sampling(const Sampling& sampling, std::int64_t vocabulary) {
  check_range("temperature", sampling.temperature, 0, 100);
  check_range("top_k", static_cast<double>(sampling.top_k), 0, 0x1p62);
  check_range("top_p", sampling.top_p, 0, 1);
  check_range("min_p", sampling.min_p, 0, 1);
  check_range("presence_penalty", sampling.presence_penalty, -2, 2);
  check_range("frequency_penalty", sampling.frequency_penalty, -2, 2);
  check_range("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
  for (const auto& [token, bias] : sampling.biases) {
    const std::string name = "logit_bias of token " + std::to_string(token);
    check_range(name.c_str(), bias, -100, 100);
    if (token >= 0 && token < vocabulary) continue;
    throw kSamplingErrors.user(name, "the vocabulary lacks the token",
                               "0 to " + std::to_string(vocabulary - 1), std::to_string(token),
                               "remove it");
  }
}

std::int64_t LogitSampler::choose(std::span<const float> logits, const Sampling& sampling,
                                  const ChoiceContext& context) {
  const std::span<const float> adjusted = adjust(logits, sampling, context);
  const float top = largest(adjusted);
  if (sampling.temperature == 0) return std::ranges::find(adjusted, top) - adjusted.begin();
  const double place = uniform(sampling.seed, context.answer.size());
  // The inverse of a temperature near 0 is infinite.
  const double scale = std::min(1 / sampling.temperature, std::numeric_limits<double>::max());
  const bool selects = sampling.top_k > 0 && sampling.top_k < std::ssize(adjusted);
  if (selects || sampling.top_p < 1 || sampling.min_p > 0) {
    truncate(adjusted, top, scale, sampling);
  } else {
    weights_.resize(adjusted.size());
    weigh(adjusted, top, scale, weights_);
    tokens_.clear();  // all
  }
  double left = place * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::int64_t last = 0;  // sums are rounded, so the last token may leave a little
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0) last = static_cast<std::int64_t>(i);
    if ((left -= weights_[i]) < 0) break;
  }
  return tokens_.empty() ? last : tokens_[last];
}

std::span<const float> LogitSampler::adjust(std::span<const float> logits, const Sampling& sampling,
                                            const ChoiceContext& context) {
  const bool penalizes = sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
                         sampling.frequency_penalty != 0;
  if (!penalizes && sampling.biases.empty() && context.allowed.empty() && context.forbidden.empty())
    return logits;
  check_finite(logits);
  adjusted_.assign(logits.begin(), logits.end());
  if (penalizes) penalize(sampling, context);
  for (const auto& [token, bias] : sampling.biases)
    adjusted_[token] = static_cast<float>(adjusted_[token] + bias);
  if (!context.allowed.empty()) exclude_others(context.allowed);
  for (const std::int64_t token : context.forbidden) adjusted_[token] = kExcluded;
  return adjusted_;
}

void LogitSampler::penalize(const Sampling& sampling, const ChoiceContext& context) {
  constexpr std::int32_t kInPrompt = -1;
  counts_.resize(adjusted_.size());
  for (const std::int64_t token : context.answer) ++counts_[token];
  const bool repetition = sampling.repetition_penalty != 1;
  const auto prompt = repetition ? context.prompt : std::span<const std::int64_t>();
  for (const std::int64_t token : prompt)
    if (counts_[token] == 0) counts_[token] = kInPrompt;
  const auto apply = [&](std::int64_t token) {
    const std::int32_t count = std::exchange(counts_[token], 0);
    if (count == 0) return;  // a repeated token
    double logit = adjusted_[token];
    logit = logit > 0 ? logit / sampling.repetition_penalty : logit * sampling.repetition_penalty;
    if (count > 0) logit -= sampling.presence_penalty + sampling.frequency_penalty * count;
    adjusted_[token] = static_cast<float>(logit);
  };
  std::ranges::for_each(prompt, apply);
  std::ranges::for_each(context.answer, apply);
}

void LogitSampler::exclude_others(std::span<const std::uint64_t> allowed) {
  for (std::size_t word = 0; word * 64 < adjusted_.size(); ++word) {
    const std::uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == ~std::uint64_t{0}) continue;
    const std::size_t end = std::min(word * 64 + 64, adjusted_.size());
    for (std::size_t token = word * 64; token < end; ++token)
      if ((bits >> (token % 64) & 1) == 0) adjusted_[token] = kExcluded;
  }
}

// Fills tokens_ with those that stay, ascending, and weights_ with theirs.
void LogitSampler::truncate(std::span<const float> logits, float top, double scale,
                            const Sampling& sampling) {
  const std::int64_t all = std::ssize(logits);
  select_set(logits, sampling.top_k > 0 ? std::min(sampling.top_k, all) : all, tokens_);
  kept_.clear();
  for (const std::int64_t token : tokens_) kept_.push_back(logits[token]);
  weights_.resize(tokens_.size());
  const double total = weigh(kept_, top, scale, weights_);
  if (sampling.top_p < 1) keep_top_p(top, scale, sampling.top_p * total);
  std::size_t count = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (weights_[i] < sampling.min_p) continue;
    tokens_[count] = tokens_[i];
    weights_[count++] = weights_[i];
  }
  tokens_.resize(count);
  weights_.resize(count);
}

// Keeps the likeliest tokens whose weights reach `share`. Only the tokens of one interval of logits
// are sorted; a sum adds the weights of an interval in the order of tokens, then the intervals.
void LogitSampler::keep_top_p(float top, double scale, double share) {
  constexpr std::size_t kIntervals = 2048;
  constexpr double kIntervalsPerUnit = 64;
  const auto interval = [&](std::size_t i) {
    const double place = (double{top} - kept_[i]) * scale * kIntervalsPerUnit;
    return place < kIntervals - 1 ? static_cast<std::size_t>(place) : kIntervals - 1;
  };
  std::array<double, kIntervals> sums = {};
  for (std::size_t i = 0; i < kept_.size(); ++i) sums[interval(i)] += weights_[i];
  std::size_t edge = 0;
  double sum = 0;
  while (edge + 1 < kIntervals && sum + sums[edge] < share) sum += sums[edge++];
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return kept_[a] > kept_[b] || (kept_[a] == kept_[b] && a < b);
  };
  std::vector<std::size_t> sorted;
  for (std::size_t i = 0; i < kept_.size(); ++i)
    if (interval(i) == edge) sorted.push_back(i);
  std::ranges::sort(sorted, likelier);
  std::size_t last = 0;
  for (const std::size_t i : sorted) {
    last = i;
    if ((sum += weights_[i]) >= share) break;
  }
  for (std::size_t i = 0; i < kept_.size(); ++i)
    if (i != last && !likelier(i, last)) weights_[i] = -1;  // below any min_p
}

ScoredToken score(std::span<const float> logits, std::int64_t token, int likeliest) {
  STRATA_CHECK(token >= 0 && token < std::ssize(logits) && likeliest >= 0, kLogitErrors.operation);
  const float top = largest(logits);
  const double log_sum = std::log(weigh(logits, top, 1, {}));
  const auto log_probability = [&](std::int64_t i) { return (double{logits[i]} - top) - log_sum; };
  ScoredToken scored{token, log_probability(token)};
  std::vector<std::int64_t> tokens;
  select_likeliest(logits, static_cast<std::size_t>(likeliest), tokens);
  for (const std::int64_t i : tokens) scored.likeliest.emplace_back(i, log_probability(i));
  return scored;
}

}  // namespace strata
