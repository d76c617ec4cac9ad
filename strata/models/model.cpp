#include "strata/models/model.h"

#include "strata/models/llama.h"

namespace strata {

Sequence make_model(const GptOptions& options, GptOutput output, TensorSplit split,
                    at::ScalarType precision) {
  completed(options);  // refuses what contradicts
  return options.kind == "llama" ? make_llama(options, output, split, precision)
                                 : make_gpt(options, output, split, precision);
}

}  // namespace strata
