// Converts files to tokens, for tokenizer_test.py.
//
//   parity_tokens TOKENIZER FILE...   one line of tokens per file; their text goes to FILE.decoded
#include <cstdio>
#include <fstream>
#include <iterator>

#include "strata/base/errors.h"
#include "strata/tokenizer/tokenizer.h"

int main(int count, char** arguments) {
  try {
    const auto tokenizer = strata::make_tokenizer(count > 1 ? arguments[1] : "");
    for (int i = 2; i < count; ++i) {
      const std::string path = arguments[i];
      std::ifstream file(path, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      const auto tokens = tokenizer->encode(text);
      for (const std::int64_t token : tokens) std::printf("%lld ", static_cast<long long>(token));
      std::printf("\n");
      std::ofstream(path + ".decoded", std::ios::binary) << tokenizer->decode(tokens);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return strata::exit_code(error);
  }
}
