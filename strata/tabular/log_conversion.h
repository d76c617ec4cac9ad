/// Writes samples in another format: Strata's records, CSV or TSV, by the end of the name.
///
/// Errors  UserError: those of reading; a text that TSV cannot hold; an unknown end of the name.
///         The file is written completely or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "strata/tabular/sample_file.h"

namespace strata {

/// Samples [first, first + count).
void write_samples(const SampleFile& from, std::int64_t first, std::int64_t count,
                   const std::string& path);

}  // namespace strata
