/// Reads a tokenizer.json of type BPE.
#pragma once

#include <memory>
#include <string>

#include "strata/tokenizer/tokenizer.h"

namespace strata {

/// `path`: a tokenizer.json. The tokens of begin and end are named by the tokenizer_config.json
/// beside it.
std::shared_ptr<const Tokenizer> read_bpe_tokenizer(const std::string& path);

}  // namespace strata
