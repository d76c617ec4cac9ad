/// Encodes rows and gradients for the network: fp32, fp16, or fp16 or int8 with a scale per row.
///
/// decode_values() returns exactly what round_values() computes. Rows that never leave the process
/// are rounded with it, so servers in the same process and servers in other processes give the same
/// bits.
///
/// Source   scale per block: Lian et al., "Persia" (arXiv 2111.05897).
/// Cost     bytes per element: 4, 2, 2, 1; bytes per scale: 1 (fp16), 2 (int8).
/// Errors   UserError: a value that is not finite, or too large for fp16. SystemError: bytes of
///          another size (decode_values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// Largest errors of a value x in a row with the largest magnitude m: 0; 2^-11 |x| + 2^-25; 2^-11
/// |x| + 2^-24 m; m / 252.
enum class WirePrecision : std::uint8_t { kFp32, kFp16, kScaledFp16, kScaledInt8 };

const char* name_of(WirePrecision precision);  ///< "fp32", "fp16", "scaled_fp16", "scaled_int8"

struct WireOptions {
  WirePrecision rows = WirePrecision::kFp32;
  WirePrecision gradients = WirePrecision::kFp32;
};

/// Returns the bytes of `rows` rows.
std::size_t values_bytes(WirePrecision precision, std::size_t rows, int width);

/// Appends the encoded values [rows, width].
void encode_values(WirePrecision precision, std::span<const float> values, int width,
                   std::vector<std::byte>& out);

/// Decodes values [rows, width] from exactly values_bytes() bytes.
std::vector<float> decoded_values(WirePrecision precision, std::span<const std::byte> bytes,
                                  int width);

/// Decodes exactly values_bytes() bytes into values [rows, width].
void decode_values(WirePrecision precision, std::span<const std::byte> bytes, int width,
                   std::span<float> values);

/// Encodes and decodes the values in place.
void round_values(WirePrecision precision, std::span<float> values, int width);

}  // namespace strata
