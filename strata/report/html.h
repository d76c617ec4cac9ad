/// Puts values into HTML, whatever bytes they hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::report {

/// Escapes markup; bytes that are not UTF-8 become U+FFFD, control characters but tab and line
/// break too: a model of bytes may write anything.
std::string escape(std::string_view text);

/// Two decimals at most, for coordinates.
std::string coordinate(double value);

std::string percent(double share);  ///< "12.5 %"

/// "+2.1 %" with its sign.
std::string signed_percent(double share);

/// Round values from `low` to `high`, about `count` of them, in steps of 1, 2 or 5 times a power
/// of 10.
std::vector<double> ticks(double low, double high, int count);

/// Decimals that tell neighbouring ticks apart.
int tick_decimals(const std::vector<double>& ticks);

}  // namespace strata::report
