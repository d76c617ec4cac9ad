/// Names the fields in which two runs' tables of rows differ: what a server and a trainer tell each other where
/// their fingerprints do.
///
/// Errors  SystemError: bytes that are no tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/rowserver/feature.h"

namespace strata {

struct SeededFeatures {
  std::vector<FeatureSpec> features;
  std::uint64_t seed = 0;
};

/// The bytes whose checksum fingerprint_of() is.
std::vector<std::byte> encode_features(const std::vector<FeatureSpec>& features,
                                       std::uint64_t seed);

/// The same in fewer bytes: of a table like the one before, its name and width alone.
std::vector<std::byte> pack_features(const std::vector<FeatureSpec>& features, std::uint64_t seed);
SeededFeatures unpack_features(std::span<const std::byte> bytes);

/// What differs, as each of two sides has it: "user: optimizer.learning_rate 0.1, words: width 8". Of many fields
/// the first ones; "" where nothing differs.
struct FeatureChanges {
  std::string here, there;
};
FeatureChanges feature_changes(const SeededFeatures& here, const SeededFeatures& there);

}  // namespace strata
