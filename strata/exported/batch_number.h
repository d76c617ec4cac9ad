/// Reads a size that depends on the number of samples from the text that torch.export writes:
/// "Symbol('s31', positive=True, integer=True)", "Mul(Integer(4), Symbol('s31', ...))".
///
/// Errors  std::nullopt: another function of the symbol, or a second symbol.
#pragma once

#include <optional>
#include <string>

#include "strata/exported/exported_program.h"

namespace strata {

/// `symbol`: of the samples; if it is empty, the first symbol becomes it.
std::optional<BatchNumber> read_batch_number(const std::string& text, std::string& symbol);

}  // namespace strata
