// All ranks run the loop together: one rank chooses tokens, the others receive them by a sum with
// zeros.
#include "strata/serve/generate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "strata/base/philox.h"

namespace strata {
namespace {

// A text, and how many of its tokens its page has.
struct Continued {
  std::vector<std::int64_t> tokens;
  std::int64_t decoded = 0;

  // The tokens that the page lacks; the whole window if the text does not fit.
  PassTokens missing(std::int32_t page, std::int64_t page_tokens) {
    const std::int64_t length = std::ssize(tokens);
    const bool fits = length <= page_tokens;
    const std::int64_t begin = fits ? decoded : length - page_tokens;
    decoded = length;
    return {.tokens = {tokens.begin() + begin, tokens.end()},
            .position = fits ? begin : 0,
            .pages = {page}};
  }
};

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

void generate(Decoder& decoder, Group& world, std::span<const GenerateRequest> requests,
              const std::function<void(std::size_t, std::int64_t)>& on_token) {
  std::vector<Continued> texts;
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    texts.push_back({requests[i].prompt});
    running.push_back(i);
  }
  const auto written = [&](std::size_t i) {
    return texts[i].tokens.size() - requests[i].prompt.size();
  };
  const auto is_complete = [&](std::size_t i) {
    return static_cast<std::int64_t>(written(i)) >= requests[i].tokens;
  };
  for (;;) {
    std::erase_if(running, is_complete);
    if (running.empty()) return;
    Pass pass;
    for (const std::size_t i : running)
      pass.push_back(texts[i].missing(static_cast<std::int32_t>(i), decoder.room().page_tokens));
    const at::Tensor logits = decoder.forward(pass);
    // One rank chooses; the others add zeros to its choices.
    std::vector<double> next(running.size(), 0);
    if (decoder.decides())
      for (std::size_t row = 0; row < running.size(); ++row)
        next[row] = static_cast<double>(requests[running[row]].sampler.choose(
            logits[static_cast<std::int64_t>(row)],
            static_cast<std::uint32_t>(written(running[row]))));
    world.all_reduce(next);
    std::vector<std::size_t> continued;
    for (std::size_t row = 0; row < running.size(); ++row) {
      const auto token = static_cast<std::int64_t>(next[row]);
      const std::size_t i = running[row];
      if (std::ranges::find(requests[i].ends, token) != requests[i].ends.end()) continue;
      continued.push_back(i);
      texts[i].tokens.push_back(token);
      on_token(i, token);
    }
    running = std::move(continued);
  }
}

}  // namespace strata
