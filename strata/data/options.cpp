#include "strata/data/options.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, DataOptions& options) {
  set.add(prefix + ".train", &options.train,
          {.help = "File to train on: any text (its bytes are the tokens) or a token file."});
  set.add(prefix + ".tokenizer", &options.tokenizer,
          {.help = "How text becomes tokens: bytes, or a tokenizer.json or the Hugging Face folder "
                   "that has it; none for a token file with a vocabulary of its own."});
  set.add(prefix + ".validation", &options.validation,
          {.help = "File to validate on; empty: the end of the training file."});
  set.add(prefix + ".validation_fraction", &options.validation_fraction,
          {.help = "Share of the training file kept for validation, at its end; 0 keeps none.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.5});
  set.add(prefix + ".shuffle", &options.shuffle,
          {.help = "Draw the windows of every epoch in an order of its own."});
}

}  // namespace strata
