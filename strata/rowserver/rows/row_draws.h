/// Draws the first values of rows: keyed by (seed, feature's name, id, element), the same on any machine.
///
/// Normal numbers by Box-Muller with a logarithm and a sine of our own, made of operations that IEEE
/// 754 rounds correctly: those of math libraries differ in last bits from processor to processor.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "strata/rowserver/feature.h"

namespace strata {

/// For everything that is drawn for a feature.
std::uint64_t feature_key(std::uint64_t seed, const std::string& name);

void draw_first_values(const RowInit& init, std::uint64_t feature_key, std::uint64_t id,
                       std::span<float> values);

}  // namespace strata
