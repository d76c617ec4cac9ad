/// Writes and reads bytes, seconds and rates with their units.
///
/// Units   bytes in powers of 1024 with IEC suffixes ("2GiB", "1.5 MiB"); seconds with SI prefixes.
///         (KB, MB, GB, TB are powers of 1000); a fraction of a byte is rounded to the nearest.
/// Errors  parse_bytes throws UserError on anything but NUMBER[B|KiB|MiB|GiB|TiB|KB|MB|GB|TB].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

/// A number of bytes that options read and print with a suffix; as a limit, 0 means "no limit".
struct Bytes {
  std::int64_t count = 0;
  friend bool operator==(Bytes, Bytes) = default;
};

Bytes parse_bytes(std::string_view text);
std::string format_bytes(std::int64_t bytes);  ///< "1.50 GiB", "824 B"
/// Returns "2GiB", "1500KiB", "7B" or "0"; parse_bytes reads it back.
std::string format_bytes_exactly(std::int64_t bytes);
std::string format_seconds(double seconds);  ///< "812 ms", "3.4 us", "2 h 05 min"
std::string format_count(double count);      ///< "10.7 M", "345"; k M G T P
std::string format_double(double value, int decimals);
/// Returns "0.001" or "1e-08": the shortest text that reads back exactly.
std::string format_double_exactly(double value);
std::string format_hex(double value);  ///< the exact bits, as C's %a

}  // namespace strata
