// Reads an input as a GGUF file: the header, the model's sizes, the tokenizer, and all weights.
#include <algorithm>
#include <vector>

#include "fuzz.h"
#include "strata/pretrained/gguf_architecture.h"
#include "strata/pretrained/gguf_texts.h"
#include "strata/pretrained/gguf_weights.h"
#include "strata/tokenizer/tokenizer.h"

namespace {

using namespace strata;

void read_weights(const std::shared_ptr<const GgufFile>& file) {
  const GgufWeights weights(file);
  for (const std::string& name : weights.names()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : weights.shape(name)) elements *= size;
    std::vector<float> values(std::min<std::int64_t>(elements, 4096));
    fuzz::accepted([&] { weights.read(name, 0, values); });
    fuzz::accepted([&] { weights.read(name, elements - std::ssize(values), values); });
  }
}

}  // namespace

void fuzz_input(std::string_view input) {
  static const fuzz::File path("model.gguf");
  path.write(input);
  fuzz::accepted([&] {
    const auto file = GgufFile::open(path.path());
    fuzz::accepted([&] { GgufArchitecture(*file).config_json(); });
    fuzz::accepted([&] { gguf_tokenizer_config_json(*file); });
    fuzz::accepted([&] { make_tokenizer(path.path())->encode("abc a <|end|>"); });
    read_weights(file);
  });
}
