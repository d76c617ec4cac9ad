/// Offers a model of text to KServe's clients, with the tensors of Triton's vLLM backend.
///
/// Inputs   text_input BYTES [1] or input_ids INT64 [n]; stream, exclude_input_in_output BOOL [1];
///          sampling_parameters BYTES [1], a JSON object.
/// Outputs  text_output BYTES [1]; if requested output_ids INT64 [k], log_probabilities FP32 [k],
///          finish_reason BYTES [1], which is empty before the end of a stream.
///
/// A stream has an answer for each token, and one without text after an end-of-sequence token.
#pragma once

#include <functional>
#include <memory>

#include "strata/kserve/model/inference_model.h"
#include "strata/openai/model.h"

namespace strata {

class TextModel final : public InferenceModel {
 public:
  explicit TextModel(const OpenAiModel& model);

  const ModelDescription& description() const override { return description_; }
  bool ready() const override;
  /// Counts the requests of all front ends of the model.
  ModelStatistics statistics() const override;
  std::function<void()> infer(InferenceRequest request,
                              std::shared_ptr<InferenceSink> sink) override;

 private:
  const std::shared_ptr<const OpenAiModel> model_;
  const ModelDescription description_;
};

}  // namespace strata
