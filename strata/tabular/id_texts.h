/// Finds what a log says for ids that training has met: a hash does not tell its text, so the samples are read
/// again until every text is found.
///
/// Cost    a vocabulary's texts are looked up; those of hashes take one pass over the samples, which ends with
///         the last of them: ids that many samples have are found soon. Memory is that of the texts found.
/// Errors  UserError: those of the file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/tabular/loader.h"

namespace strata {

using IdTexts = std::unordered_map<std::uint64_t, std::string>;

/// `wanted`: ids, by categorical feature; so are the texts. An id that no sample has, and one that is a number or
/// a quantile, has none. Of a long text the first 256 bytes stay.
std::vector<IdTexts> texts_of_ids(const SampleReader& reader, const Preprocessing& preprocessing,
                                  const std::vector<std::vector<std::uint64_t>>& wanted);

}  // namespace strata
