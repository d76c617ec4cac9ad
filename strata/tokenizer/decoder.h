/// Defines how names of tokens become bytes again, as in the `decoder` of a tokenizer.json.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/tokenizer/pattern.h"

namespace strata {

struct TokenDecoder {
  bool byte_level = false;   ///< names spell bytes as characters
  bool byte_tokens = false;  ///< "<0x0A>" is the byte 10
  std::vector<std::pair<Pattern, std::string>> replacements;
  std::string strip;            ///< at most this many times
  std::size_t strip_times = 0;  ///< so often if it is there

  std::string bytes_of(const std::string& name) const;
};

TokenDecoder read_decoder(const JsonPart& decoder);

/// The bytes that a name of a byte-level vocabulary spells; none if it has other characters.
std::optional<std::string> spelled_bytes(const std::string& name);

/// 10 for "<0x0A>"; -1 for any other name.
int byte_of(const std::string& name);

}  // namespace strata
