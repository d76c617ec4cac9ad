/// Writes rows and gradients as they travel: whole, in 16 bit, or in 16 or 8 bit with a scale a row.
///
/// What comes out of decode_values() is what round_values() leaves: rows that never left the process
/// are rounded alike, so that servers of one process and of many give the same bits.
///
/// Source  scaled by block: Lian et al., "Persia" (arXiv 2111.05897).
/// Cost    bytes an element: 4, 2, 2, 1; the scale of a row: 1 (fp16), 2 (int8).
/// Errors  UserError: a value that is not finite, or too large for fp16. SystemError: bytes of another
///         size (decode_values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// Errors of a value x in a row whose largest magnitude is m: 0; 2^-11 |x| + 2^-25; 2^-11 |x| + 2^-24 m;
/// m / 252.
enum class WirePrecision : std::uint8_t { kFp32, kFp16, kScaledFp16, kScaledInt8 };

const char* name_of(WirePrecision precision);  ///< "fp32", "fp16", "scaled_fp16", "scaled_int8"

struct WireOptions {
  WirePrecision rows = WirePrecision::kFp32;
  WirePrecision gradients = WirePrecision::kFp32;
};

/// Of so many rows.
std::size_t values_bytes(WirePrecision precision, std::size_t rows, int width);

/// Appends [rows, width].
void encode_values(WirePrecision precision, std::span<const float> values, int width,
                   std::vector<std::byte>& out);

/// The [rows, width] that exactly values_bytes() hold.
std::vector<float> decoded_values(WirePrecision precision, std::span<const std::byte> bytes,
                                  int width);

/// Fills [rows, width] from exactly values_bytes().
void decode_values(WirePrecision precision, std::span<const std::byte> bytes, int width,
                   std::span<float> values);

/// Encodes and decodes.
void round_values(WirePrecision precision, std::span<float> values, int width);

}  // namespace strata
