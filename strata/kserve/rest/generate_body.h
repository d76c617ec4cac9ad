/// Reads and writes the bodies of POST /v2/models/NAME/generate and generate_stream, which have no
/// tensors: {"text_input": "Hello", "max_tokens": 5} to {"text_output": " world"}.
///
/// A field that has the name of an input is its only element, or a list of them; "id" names the
/// request; "parameters" and all other fields are parameters.
///
/// Source  Triton's generate extension.
/// Errors  ApiError 400.
#pragma once

#include <string>

#include "strata/kserve/model/inference_model.h"

namespace strata {

InferenceRequest read_generate_body(const std::string& body, const ModelDescription& model);

/// The answer as one line of JSON.
std::string generate_answer(const InferenceHead& head, const InferenceAnswer& answer);

}  // namespace strata
