/// Offers a model that scores samples to KServe's clients: requests that arrive at about the same
/// time share a forward pass.
///
/// Inputs   those of the scorer, each [n]: an element for each sample of the request.
/// Outputs  score FP32 [n], probabilities; if requested logit FP32 [n], and the scorer's numbers,
///          each INT64 [1].
///
/// Errors   400: inputs of different lengths, no samples, more than fit a pass, what the scorer
///          refuses. 429: too many requests wait. 503: the model is not ready, or ends, or the
///          scorer throws a SystemError.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strata/kserve/model/inference_model.h"
#include "strata/kserve/model/sample_queue.h"
#include "strata/kserve/model/sample_scorer.h"

namespace strata {

class SampleModel final : public InferenceModel {
 public:
  /// Starts a thread, in which the scorer computes.
  SampleModel(const std::string& name, const std::string& platform,
              std::shared_ptr<SampleScorer> scorer, SampleLimits limits);
  /// Requests that wait end with an error.
  ~SampleModel() override;

  const ModelDescription& description() const override;
  bool ready() const override;
  ModelStatistics statistics() const override;
  std::function<void()> infer(InferenceRequest request,
                              std::shared_ptr<InferenceSink> sink) override;

  /// Requests that have started and not ended.
  std::int64_t running() const;

 private:
  struct Parts;
  const std::shared_ptr<Parts> parts_;  // requests refer to it as long as they can be cancelled
};

}  // namespace strata
