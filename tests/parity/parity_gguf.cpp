// Prints what a GGUF file holds, for gguf_test.py.
//
//   parity_gguf FILE text NAME          a text by its name in a Hugging Face folder
//   parity_gguf FILE tensor NAME        the elements of a tensor as fp32, by its name in the file
#include <cstdio>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/pretrained/gguf_file.h"
#include "strata/pretrained/gguf_texts.h"
#include "strata/pretrained/gguf_weights.h"

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "parity_gguf FILE text|tensor NAME\n");
    return 2;
  }
  try {
    const std::string path = arguments[1], what = arguments[2], name = arguments[3];
    if (what == "text") {
      std::printf("%s\n", strata::GgufTexts(path, {}).text(name).c_str());
      return 0;
    }
    const auto file = strata::GgufFile::open(path);
    const strata::GgufTensor& tensor = file->tensors().at(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
    strata::read_elements(*file, tensor, 0, values);
    std::fwrite(values.data(), sizeof(float), values.size(), stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return strata::exit_code(error);
  }
}
