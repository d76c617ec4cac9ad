/// Reads a text file through a tokenizer, once.
#pragma once

#include <string>

#include "strata/data/token_file.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {

/// The text's tokens as a token file that has lost its name: its bytes are mapped, and the medium
/// has them back when the last copy goes.
///
/// Cost     8 bytes of memory a token while it is written, then none that can't be paged out.
/// Errors   UserError: missing, empty. SystemError: no space for temporary files (TMPDIR).
TokenFile tokenize_file(const std::string& path, const Tokenizer& tokenizer);

}  // namespace strata
