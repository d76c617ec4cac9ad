/// Speaks of our models in the words of Hugging Face: names of tensors and config.json, for GPT-2,
/// Llama, Qwen 2 and Qwen 3.
///
/// Source  transformers 5 (rope_parameters, dtype) and 4 (rope_theta, rope_scaling, torch_dtype):
///         both are written, either is read.
/// Errors  UserError: a configuration whose model we don't have; InternalError: a name that isn't
///         one of the model's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/models/decoder_options.h"

namespace strata {

/// One tensor of theirs: rows [row_begin, row_begin + rows) of dimension 0 of a weight of ours.
struct HuggingFaceTensor {
  std::string name;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  bool transposed = false;  ///< theirs is [in, out] (GPT-2's Conv1D)
  friend bool operator==(const HuggingFaceTensor&, const HuggingFaceTensor&) = default;
};

/// What the weight "block3.attention.qkv.weight" (layer, then weight) becomes; together they cover
/// its rows in order. A model that they don't have (skip) keeps our names.
std::vector<HuggingFaceTensor> hugging_face_tensors(const DecoderOptions& options,
                                                    const std::string& our_name);

/// The same tensor in files that were written without the head: "transformer.h.0..." is "h.0...".
std::string without_model_prefix(const std::string& name);

/// config.json. Vocabularies other than GPT-2's own get no tokens of begin and end.
std::string hugging_face_config(const DecoderOptions& options);

/// The model of a config.json; `where` names it in refusals. Dropout is read where theirs is the
/// same everywhere but in the attention, and 0 there; otherwise 0: it belongs to the training.
DecoderOptions read_hugging_face_config(const std::string& json_text, const std::string& where);

}  // namespace strata
