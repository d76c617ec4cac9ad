#include "strata/data/sampler.h"

#include <algorithm>
#include <bit>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr int kRounds = 8;  // four make a network random; small domains need more
constexpr std::uint64_t kPurpose = 0x73616D706C6572;  // "sampler": not the keys of dropout

}  // namespace

Sampler::Sampler(std::int64_t count, bool shuffle, std::uint64_t seed)
    : count_(count), shuffle_(shuffle), seed_(mix_key(seed, kPurpose)) {
  STRATA_CHECK(count > 0, "data.sampler");
  const int bits = std::bit_width(static_cast<std::uint64_t>(count - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Sampler::window(std::int64_t sample) const {
  STRATA_CHECK(sample >= 0, "data.sampler");
  const auto index = static_cast<std::uint64_t>(sample % count_);
  if (!shuffle_) return static_cast<std::int64_t>(index);
  const std::uint64_t key = mix_key(seed_, static_cast<std::uint64_t>(epoch(sample)));
  std::uint64_t place = permute(index, key);
  while (place >= static_cast<std::uint64_t>(count_)) place = permute(place, key);
  return static_cast<std::int64_t>(place);
}

std::uint64_t Sampler::permute(std::uint64_t index, std::uint64_t key) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = index >> half_bits_, right = index & mask;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t next =
        left ^ (mix_key(key + static_cast<std::uint64_t>(round), right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace strata
