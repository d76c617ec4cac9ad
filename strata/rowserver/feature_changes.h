/// Names the fields in which the tables of two runs differ. A server and a trainer exchange them if
/// their fingerprints differ.
///
/// Errors   SystemError: bytes that are not tables.
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

/// Returns the bytes whose checksum is fingerprint_of().
std::vector<std::byte> encode_features(const std::vector<FeatureSpec>& features,
                                       std::uint64_t seed);

/// The same in fewer bytes: a table that equals the previous one is only its name and width.
std::vector<std::byte> pack_features(const std::vector<FeatureSpec>& features, std::uint64_t seed);
SeededFeatures unpack_features(std::span<const std::byte> bytes);

/// The differences as each side has them: "user: optimizer.learning_rate 0.1, words: width 8". Only
/// the first ones if there are many; "" if there are none.
struct FeatureChanges {
  std::string here, there;
};
FeatureChanges feature_changes(const SeededFeatures& here, const SeededFeatures& there);

}  // namespace strata
