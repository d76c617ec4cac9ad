#include "strata/serve/text_generation.h"

#include <algorithm>
#include <memory>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/disk/temporary_disk.h"
#include "strata/serve/generate.h"
#include "strata/serve/serving_plan.h"
#include "strata/tokenizer/text_stream.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                        bool begins) {
  std::vector<std::int64_t> tokens =
      begins ? tokenizer.encode_with_prefix(prompt) : tokenizer.encode(prompt);
  if (tokens.empty() && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
  if (!tokens.empty()) return tokens;
  throw UserError({.operation = "serve.generate",
                   .where = "--prompt",
                   .what = "nothing to continue",
                   .expected = "at least one token: this tokenizer has none that begins a text",
                   .got = "an empty prompt",
                   .fix = "pass --prompt \"In the beginning\""});
}

}  // namespace

std::vector<std::string> generate_text(const ServedModel& served, const TextRequest& request) {
  const auto tokenizer = tokenizer_of(served);
  std::vector<GenerateRequest> requests;
  std::size_t longest = 0, prompts = 0;
  for (const std::string& prompt : request.prompts) {
    requests.push_back({.prompt = prompt_tokens(*tokenizer, prompt, request.begins),
                        .tokens = request.tokens,
                        .ends = tokenizer->ends(),
                        .sampling = {.temperature = request.temperature, .seed = request.seed}});
    longest = std::max(longest, requests.back().prompt.size());
    prompts += requests.back().prompt.size();
  }
  const Mesh& mesh = served.ranks.mesh;
  const Sequential model = network_of(served);
  const auto at_once = static_cast<std::int64_t>(requests.size());
  const PageRoom room{.page_tokens = std::min(served.model.context,
                                              static_cast<std::int64_t>(longest) + request.tokens),
                      .pages = at_once};
  // Beyond the context every token computes all windows anew.
  const bool slides = static_cast<std::int64_t>(longest) + request.tokens > room.page_tokens;
  const std::int64_t pass_tokens =
      slides ? at_once * room.page_tokens : static_cast<std::int64_t>(prompts);
  const ServingPlan plan = plan_serving({.model = model,
                                         .mesh = mesh,
                                         .room = room,
                                         .context = room.page_tokens,
                                         .pass_tokens = pass_tokens,
                                         .pass_logits = at_once,
                                         .memory = served.memory});
  RanksOptions ranks = served.ranks;
  ranks.rendezvous = request.in_this_process ? Rendezvous{} : rendezvous_from_environment();
  const TemporaryDisk disk(served.memory.disk.path, "generate", ranks.rendezvous->process);
  std::vector<std::string> texts(requests.size());
  run_ranks(ranks, [&](Group& group, MemoryAccount&) {
    Decoder decoder(model, plan.steps, room, group, weight_tiers(served, disk.path()));
    load_checkpoint(decoder, served.model, served.checkpoint);
    const auto show = [&](std::size_t i, const std::string& piece) {
      if (group.rank() != 0) return;
      texts[i] += piece;
      if (request.on_text) request.on_text(i, piece);
    };
    std::vector<TextStream> streams;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      streams.emplace_back(*tokenizer, requests[i].prompt);
      show(i, "");  // the text starts here
    }
    generate(decoder, group, requests,
             [&](std::size_t i, std::int64_t token) { show(i, streams[i].push(token)); });
    for (std::size_t i = 0; i < requests.size(); ++i) show(i, streams[i].finish());
  });
  return texts;
}

}  // namespace strata
