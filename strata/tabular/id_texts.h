/// Finds the texts of ids that training has seen. A hash does not reveal its text, so the samples
/// are read again until every text has been found.
///
/// Cost    texts of a vocabulary are looked up; those of hashes take one pass over the samples,
///         which ends at the last text: frequent ids are found early. Memory is that of the found
///         texts.
/// Errors  UserError: those of the file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/tabular/loader.h"

namespace strata {

using IdTexts = std::unordered_map<std::uint64_t, std::string>;

/// `wanted`: ids, by categorical feature, as are the returned texts. An id that no sample has, and
/// one that is a number or a quantile, has no text. Only the first 256 bytes of a long text are
/// kept.
std::vector<IdTexts> texts_of_ids(const SampleReader& reader, const Preprocessing& preprocessing,
                                  const std::vector<std::vector<std::uint64_t>>& wanted);

}  // namespace strata
