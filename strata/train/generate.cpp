#include "strata/train/generate.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/thread_ranks.h"
#include "strata/models/gpt.h"
#include "strata/train/saving.h"

namespace strata {
namespace {

// Draws from softmax(logits / temperature); the likeliest at temperature 0.
std::int64_t draw(const at::Tensor& logits, double temperature, double uniform) {
  const float* z = logits.const_data_ptr<float>();
  const std::int64_t count = logits.numel();
  const float top = *std::max_element(z, z + count);
  if (temperature == 0) return std::max_element(z, z + count) - z;
  std::vector<double> weights(count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += weights[i] = std::exp((z[i] - top) / temperature);
  double left = uniform * sum;
  for (std::int64_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return i;
  return count - 1;
}

// Layers shared evenly among the ranks.
Partition even_partition(int layers, int stages) {
  Partition partition;
  for (int stage = 0; stage <= stages; ++stage) partition.bounds.push_back(layers * stage / stages);
  return partition;
}

}  // namespace

std::string generate(const Recipe& recipe, const GenerateRequest& request) {
  if (request.prompt.empty()) {
    throw UserError({.operation = "train.generate",
                     .where = "--prompt",
                     .what = "nothing to continue",
                     .expected = "at least one byte",
                     .got = "an empty prompt",
                     .fix = "pass --prompt \"In the beginning\""});
  }
  const Sequence model = make_gpt(recipe.model, GptOutput::kLogits);
  const TrainerOptions options{
      .partition = even_partition(model.num_layers(), static_cast<int>(recipe.mesh.pp)),
      .optimizer = recipe.optimizer};
  std::string text;
  run_thread_ranks(
      {.ranks = static_cast<int>(recipe.mesh.pp), .threads_per_rank = recipe.threads_per_rank()},
      [&](Group& group, MemoryAccount&) {
        Trainer trainer(model, options, group);
        load_weights(trainer, request.checkpoint);
        std::vector<std::int64_t> tokens;
        for (const unsigned char byte : request.prompt) tokens.push_back(byte);
        for (std::int64_t i = 0; i < request.tokens; ++i) {
          const std::size_t length =
              std::min(tokens.size(), static_cast<std::size_t>(recipe.model.context));
          const std::vector<std::int64_t> recent(tokens.end() - static_cast<std::ptrdiff_t>(length),
                                                 tokens.end());
          const at::Tensor logits =
              trainer.forward({.inputs = {at::tensor(recent).unsqueeze(0)},
                               .samples = 1,
                               .valid_tokens = static_cast<std::int64_t>(length)});
          // The rank that has logits draws; adding zeros tells the others.
          double next[] = {0};
          if (logits.defined()) {
            const PhiloxBlock block = philox({static_cast<std::uint32_t>(i), 0, 0, 2},
                                             {static_cast<std::uint32_t>(request.seed),
                                              static_cast<std::uint32_t>(request.seed >> 32)});
            next[0] =
                static_cast<double>(draw(logits, request.temperature, (block[0] + 0.5) * 0x1p-32));
          }
          group.all_reduce(next);
          tokens.push_back(static_cast<std::int64_t>(next[0]));
          if (group.rank() > 0) continue;
          const std::string piece(1, static_cast<char>(tokens.back()));
          text += piece;
          if (request.on_text) request.on_text(piece);
        }
      });
  return text;
}

}  // namespace strata
