/// Counts the floating-point operations of matrix products in a graph: linear layers, products,
/// convolutions and attention. Other operators count nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/exported/exported_program.h"

namespace strata {

/// A product of sizes.
struct FlopTerm {
  std::vector<BatchNumber> factors;
  double at(std::int64_t samples) const;
};

/// The operations of the node are the sum of the terms; empty: it has no products.
std::vector<FlopTerm> operator_flops(const ExportedProgram& program, const GraphNode& node);

}  // namespace strata
