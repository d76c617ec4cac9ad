/// Reads what the components of a tokenizer.json (normalizer, pre_tokenizer, decoder,
/// post_processor) have in common.
///
/// Errors  UserError by file and place for a component of the wrong kind.
#pragma once

#include <string>
#include <vector>

#include "strata/base/json_document.h"
#include "strata/tokenizer/pattern.h"

namespace strata {

std::string type_of(const JsonPart& component);  ///< "" if it has none

/// Components of a Sequence whose members are under `key`, or the component alone; none if null.
std::vector<JsonPart> steps_of(const JsonPart& component, const std::string& key);

Pattern pattern_of(const JsonPart& value);  ///< {"String": ...} or {"Regex": ...}

}  // namespace strata
