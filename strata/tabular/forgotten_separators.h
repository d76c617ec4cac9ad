/// Detects features without a separator whose texts look like lists: the whole list would become
/// one id.
///
/// Cost    reads the first thousand samples.
/// Errors  UserError: such a feature whose pool or `last` needs several ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/tabular/sample_file.h"

namespace strata {

/// One sentence for each suspicious feature. A text looks like a list if it contains a comma, a
/// semicolon, a bar or a blank; a feature is suspicious if more than half of its texts do.
std::vector<std::string> forgotten_separators(const TabularOptions& options, const SampleFile& file,
                                              std::int64_t count);

}  // namespace strata
