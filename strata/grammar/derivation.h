/// Decides for all expressions of a grammar what they can match: some text, the empty text.
///
/// Cost  linear in the size of the grammar.
#pragma once

#include <vector>

#include "strata/grammar/grammar.h"

namespace strata {

enum class Derivation : std::uint8_t {
  kSomeText,
  kEmptyText,
};

/// By node; a node of a rule that is not defined derives nothing.
std::vector<bool> derive(const Grammar& grammar, Derivation what);

}  // namespace strata
