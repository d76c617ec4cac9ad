/// Reads and writes the value of one option as text: the part of OptionSet that knows the types.
///
/// Errors  read_value throws UserError: wrong type, value out of its choices or range.
#pragma once

#include <string>

#include "strata/base/options.h"

namespace strata {

/// Writes the present value in the form that read_value takes back unchanged.
std::string write_value(const OptionSet::Target& target);

/// Checks `text` against the type and `info` and, only if it is legal, stores it.
void read_value(const OptionSet::Target& target, const FieldInfo& info, const std::string& path,
                const std::string& text, const std::string& where);

/// Writes what `info` allows: "gpipe | 1f1b", "0 to 1", "at least 1"; empty if everything is.
std::string write_limits(const OptionSet::Target& target, const FieldInfo& info);

}  // namespace strata
