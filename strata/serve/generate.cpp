// All ranks run the loop together: one rank chooses tokens, the others receive them by a sum with
// zeros.
#include "strata/serve/generate.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "strata/batching/sampler.h"

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

// Chooses the next token of a text; logits [V], in host memory.
std::int64_t choose(LogitSampler& sampler, const GenerateRequest& request, const Continued& text,
                    const at::Tensor& logits) {
  return sampler.choose(
      {logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel())}, request.sampling,
      {.prompt = request.prompt, .answer = std::span(text.tokens).subspan(request.prompt.size())});
}

}  // namespace

void generate(Decoder& decoder, Group& world, std::span<const GenerateRequest> requests,
              const std::function<void(std::size_t, std::int64_t)>& on_token) {
  LogitSampler sampler;
  std::vector<Continued> texts;
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    texts.push_back({requests[i].prompt});
    running.push_back(i);
  }
  const auto is_complete = [&](std::size_t i) {
    return std::ssize(texts[i].tokens) - std::ssize(requests[i].prompt) >= requests[i].tokens;
  };
  for (;;) {
    std::erase_if(running, is_complete);
    if (running.empty()) return;
    Pass pass;
    for (const std::size_t i : running)
      pass.push_back(texts[i].missing(static_cast<std::int32_t>(i), decoder.room().page_tokens));
    at::Tensor logits = decoder.forward(pass).logits;
    // One rank chooses; the others add zeros to its choices.
    std::vector<double> next(running.size(), 0);
    if (decoder.decides()) {
      logits = logits.cpu();
      for (std::size_t row = 0; row < running.size(); ++row)
        next[row] = static_cast<double>(choose(sampler, requests[running[row]], texts[running[row]],
                                               logits[static_cast<std::int64_t>(row)]));
    }
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
