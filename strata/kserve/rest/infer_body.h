/// Reads and writes the bodies of POST /v2/models/NAME/infer: JSON, followed by the bytes of
/// tensors that are not in it.
///
/// Source  Open Inference Protocol; Triton's extension for binary tensor data.
/// Errors  ApiError 400: malformed JSON, lengths that do not add up, tensors in shared memory.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "strata/http/routes.h"
#include "strata/kserve/model/inference_model.h"

namespace strata {

/// The header that states how many bytes of a body are JSON; without it all are.
inline constexpr const char* kJsonLengthHeader = "Inference-Header-Content-Length";

/// How the client wants the outputs.
struct OutputForm {
  std::map<std::string, bool> binary;  ///< by output
  bool binary_by_default = false;
  bool is_binary(const std::string& output) const;
};

struct InferBody {
  InferenceRequest request;  ///< without model, version and key
  OutputForm form;
};

/// `json_length`: the value of the header, or empty.
InferBody read_infer_body(const std::string& body, std::string_view json_length);

HttpAnswer infer_answer(const InferenceHead& head, const OutputForm& form,
                        const InferenceAnswer& answer);

}  // namespace strata
