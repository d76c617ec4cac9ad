#include "strata/base/sampler.h"

#include <algorithm>
#include <bit>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr int kRounds = 8;  // four make a network random; small domains need more
constexpr std::uint64_t kPurpose = 0x73616D706C6572;  // "sampler": differs from the keys of dropout

std::uint64_t feistel(std::uint64_t index, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = index >> half_bits, right = index & mask;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t next =
        left ^ (mix_key(key + static_cast<std::uint64_t>(round), right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

Permutation::Permutation(std::int64_t count) : count_(count) {
  STRATA_CHECK(count > 0, "base.permutation");
  const int bits = std::bit_width(static_cast<std::uint64_t>(count - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Permutation::at(std::int64_t index, std::uint64_t key) const {
  STRATA_CHECK(index >= 0 && index < count_, "base.permutation");
  std::uint64_t place = feistel(static_cast<std::uint64_t>(index), half_bits_, key);
  while (place >= static_cast<std::uint64_t>(count_)) place = feistel(place, half_bits_, key);
  return static_cast<std::int64_t>(place);
}

Sampler::Sampler(std::int64_t count, bool shuffle, std::uint64_t seed)
    : permutation_(count), shuffle_(shuffle), seed_(mix_key(seed, kPurpose)) {}

std::int64_t Sampler::at(std::int64_t epoch, std::int64_t place) const {
  STRATA_CHECK(epoch >= 0 && place >= 0 && place < count(), "base.sampler");
  if (!shuffle_) return place;
  return permutation_.at(place, mix_key(seed_, static_cast<std::uint64_t>(epoch)));
}

}  // namespace strata
