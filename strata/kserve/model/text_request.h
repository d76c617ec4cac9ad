/// Reads a request for text from the tensors that Triton's vLLM backend defines.
///
/// Fields such as max_tokens and temperature are those of POST /v1/completions, read by the same
/// reader: from the JSON of `sampling_parameters`, else from the parameters of the request.
///
/// Errors  ApiError 400 that names the tensor or the field.
#pragma once

#include <string>
#include <vector>

#include "strata/kserve/model/inference_model.h"
#include "strata/openai/completion_request.h"

namespace strata {

/// Names of tensors.
inline constexpr const char *kTextInput = "text_input", *kInputIds = "input_ids",
                            *kStream = "stream", *kSamplingParameters = "sampling_parameters",
                            *kExcludeInput = "exclude_input_in_output",
                            *kTextOutput = "text_output", *kOutputIds = "output_ids",
                            *kLogProbabilities = "log_probabilities",
                            *kFinishReason = "finish_reason";

struct TextInference {
  AnswerRequest answer;  ///< one prompt, one choice
  std::string prefix;    ///< the text of the prompt, if the answer begins with it
  std::vector<std::string> outputs;
};

std::vector<TensorMetadata> text_inputs();
std::vector<TensorMetadata> text_outputs();

TextInference read_text_request(const InferenceRequest& request, const OpenAiModel& model);

}  // namespace strata
