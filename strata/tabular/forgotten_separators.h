/// Notices features without a separator whose texts look like lists: the whole list would be one id.
///
/// Cost    the first thousand samples are read.
/// Errors  UserError: such a feature whose pool or `last` asks for several ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/tabular/sample_file.h"

namespace strata {

/// A sentence for each such feature that may be meant so. A text looks like a list if a comma, a semicolon, a bar
/// or a blank stands inside it; a feature is noticed if more than half of its texts do.
std::vector<std::string> forgotten_separators(const TabularOptions& options, const SampleFile& file,
                                              std::int64_t count);

}  // namespace strata
