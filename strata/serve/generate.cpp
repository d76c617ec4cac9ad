// All ranks run the loop in step: one chooses, the others learn its choice by a sum with zeros.
#include "strata/serve/generate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/base/philox.h"

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

std::int64_t TokenSampler::choose(const at::Tensor& logits, std::uint32_t number) const {
  const at::Tensor host = logits.cpu();
  const float* z = host.const_data_ptr<float>();
  const std::int64_t count = logits.numel();
  const float* top = std::max_element(z, z + count);
  if (temperature_ == 0) return top - z;
  std::vector<double> weights(count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += weights[i] = std::exp((z[i] - *top) / temperature_);
  const PhiloxBlock block = philox({number, 0, 0, 2}, {static_cast<std::uint32_t>(seed_),
                                                       static_cast<std::uint32_t>(seed_ >> 32)});
  double left = (block[0] + 0.5) * 0x1p-32 * sum;
  for (std::int64_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return i;
  return count - 1;
}

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
