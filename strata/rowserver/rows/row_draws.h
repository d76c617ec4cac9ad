/// Draws the initial values of rows, keyed by (seed, name of the feature, id, element): equal on
/// every machine.
///
/// Normal numbers use the Box-Muller transform with our own logarithm and sine, composed of
/// operations that IEEE 754 rounds correctly. The last bits of math libraries' functions differ
/// between processors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "strata/rowserver/feature.h"

namespace strata {

/// The key of everything that is drawn for a feature.
std::uint64_t feature_key(std::uint64_t seed, const std::string& name);

void draw_first_values(const RowInit& init, std::uint64_t feature_key, std::uint64_t id,
                       std::span<float> values);

}  // namespace strata
