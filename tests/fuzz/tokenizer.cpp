// Reads an input as a tokenizer.json and a text, encodes the text and decodes its tokens.
#include <algorithm>

#include "fuzz.h"
#include "strata/tokenizer/tokenizer.h"

void fuzz_input(std::string_view input) {
  static const strata::fuzz::File path("tokenizer.json");
  const strata::fuzz::TwoTexts texts(input);
  path.write(texts.first);
  strata::fuzz::accepted([&] {
    const auto tokenizer = strata::make_tokenizer(path.path());
    const auto tokens = tokenizer->encode(texts.second);
    strata::fuzz::require(
        std::ranges::all_of(
            tokens, [&](auto token) { return token >= 0 && token < tokenizer->vocabulary(); }),
        "tokens are of the vocabulary");
    tokenizer->decode(tokens);
  });
}
