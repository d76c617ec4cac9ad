#include "strata/models/gpt_options.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, GptOptions& options) {
  set.add(prefix + ".kind", &options.kind, {.help = "Architecture.", .choices = {"gpt"}});
  set.add(prefix + ".layers", &options.layers,
          {.help = "Transformer blocks.", .unit = "layers", .minimum = 1});
  set.add(
      prefix + ".width", &options.width,
      {.help = "Width of the residual stream; multiples of 16 make bits independent of threads.",
       .unit = "elements",
       .minimum = 1});
  set.add(prefix + ".heads", &options.heads,
          {.help = "Attention heads; must divide the width.", .unit = "heads", .minimum = 1});
  set.add(prefix + ".vocab", &options.vocab,
          {.help = "Vocabulary.", .unit = "tokens", .minimum = 1});
  set.add(prefix + ".context", &options.context,
          {.help = "Longest sample, and the length of training samples.",
           .unit = "tokens",
           .minimum = 1});
  set.add(prefix + ".dropout", &options.dropout,
          {.help = "Probability that an activation is dropped in training.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.99});
  set.add(prefix + ".tie", &options.tie,
          {.help = "Whether the head uses the token embedding as its weight."});
  set.add(prefix + ".skip", &options.skip,
          {.help = "Whether the embedding is added once more before the head, across all stages."});
}

}  // namespace strata
