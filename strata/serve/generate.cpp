#include "strata/serve/generate.h"

#include <algorithm>

namespace strata {
namespace {

// Logits behind the text, of which the decoder may have seen all but the end.
at::Tensor logits_behind(Decoder& decoder, std::span<const std::int64_t> text) {
  const auto length = static_cast<std::int64_t>(text.size());
  if (length <= decoder.positions()) return decoder.forward(text.subspan(decoder.length()));
  decoder.clear();
  return decoder.forward(text.last(decoder.positions()));
}

}  // namespace

void generate(Decoder& decoder, Group& world, const GenerateRequest& request,
              const std::function<void(std::int64_t)>& on_token) {
  std::vector<std::int64_t> text = request.prompt;
  decoder.clear();
  for (std::int64_t i = 0; i < request.tokens; ++i) {
    const at::Tensor logits = logits_behind(decoder, text);
    // One rank chooses; adding its choice to zeros tells the others.
    double next[] = {0};
    if (decoder.decides())
      next[0] = static_cast<double>(request.sampler.choose(logits, static_cast<std::uint32_t>(i)));
    world.all_reduce(next);
    const auto token = static_cast<std::int64_t>(next[0]);
    if (std::find(request.ends.begin(), request.ends.end(), token) != request.ends.end()) return;
    text.push_back(token);
    on_token(token);
  }
}

}  // namespace strata
