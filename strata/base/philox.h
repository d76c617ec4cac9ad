/// Draws random numbers from a counter: a number depends on its purpose and not on earlier draws.
/// Every mesh gets the same dropout mask and the same initial weights.
///
/// Source  Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11), Philox4x32-10.
/// Cost    about 10 multiplications for 4 words; `nn/kernels` holds the vectorised form.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// Mixes words into a 64-bit key (SplitMix64 finaliser), for keys made of names and indices.
constexpr std::uint64_t mix_key(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace strata
