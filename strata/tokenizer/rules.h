/// Reads vocabulary, merges and the prefix of a tokenizer.json.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/tokenizer/components.h"
#include "strata/tokenizer/merge.h"

namespace strata {

/// `model`: of type BPE. `byte_level`: its names spell bytes.
BpeRules read_bpe_rules(const JsonPart& model, bool byte_level);

/// The tokens that the post-processor puts in front of a text; those behind it are left out, for a
/// text that ends has nothing to continue.
std::vector<std::int64_t> read_prefix(const JsonPart& post_processor);

}  // namespace strata
