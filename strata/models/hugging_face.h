/// Translates our models to Hugging Face's names of tensors and config.json, for GPT-2, Llama,
/// Mistral (a Llama with a sliding window), Qwen 2 and Qwen 3.
///
/// Source  transformers 5 (rope_parameters, dtype) and 4 (rope_theta, rope_scaling, torch_dtype):
///         both are written, either is read.
/// Errors  UserError: a configuration of a model that we do not have; InternalError: a name that is
///         none of the model's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/models/decoder_options.h"

namespace strata {

/// A Hugging Face tensor: rows [row_begin, row_begin + rows) of dimension 0 of one of our weights.
struct HuggingFaceTensor {
  std::string name;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  bool transposed = false;  ///< the file's is [in, out] (GPT-2's Conv1D)
  friend bool operator==(const HuggingFaceTensor&, const HuggingFaceTensor&) = default;
};

/// The tensors that hold the weight "block3.attention.qkv.weight" (layer, then weight); together
/// they cover its rows in order. A model that Hugging Face does not have (skip) keeps our names.
std::vector<HuggingFaceTensor> hugging_face_tensors(const DecoderOptions& options,
                                                    const std::string& our_name);

/// The tensor's name in files written without the head: "transformer.h.0..." is "h.0...".
std::string without_model_prefix(const std::string& name);

/// Writes config.json. Only GPT-2's own vocabulary gets begin and end tokens. An attention pattern
/// that Hugging Face does not have makes the type one of ours, which other programs refuse.
std::string hugging_face_config(const DecoderOptions& options);

/// Reads the model of a config.json; `where` names it in errors. Dropout is read if it is the same
/// everywhere except in the attention and 0 there; otherwise it is 0, because it belongs to the
/// training.
DecoderOptions read_hugging_face_config(const std::string& json_text, const std::string& where);

}  // namespace strata
