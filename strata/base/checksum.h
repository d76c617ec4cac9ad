/// Computes the checksum that Strata's files carry: XXH3, 64 bits.
///
/// It detects torn writes and flipped bits, not forgery.
///
/// Source  xxHash (Collet), through libxxhash.
/// Cost    memory bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace strata {

std::uint64_t checksum(std::span<const std::byte> bytes);

/// Computes the same checksum from bytes that arrive in parts.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// Returns 16 hexadecimal digits, as manifests and messages write a checksum.
std::string checksum_text(std::uint64_t value);

}  // namespace strata
