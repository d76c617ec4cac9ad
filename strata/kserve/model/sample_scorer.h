/// Defines what a model of samples computes: the samples of a request from its tensors, and a score
/// for each sample of several requests at once.
///
/// Threads  read(): any. score(): one at a time, on the thread of run().
/// Errors   ApiError; UserError from read() for what a client has sent. SystemError from score():
///          something that it needs does not answer now.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/kserve/model/inference_model.h"

namespace strata {

/// The samples of a request, in the form that the scorer needs.
class RequestSamples {
 public:
  virtual ~RequestSamples() = default;
};

struct SampleScores {
  std::vector<float> logits;          ///< one for each sample of the requests, in their order
  std::vector<std::int64_t> numbers;  ///< as SampleScorer::numbers()
};

class SampleScorer {
 public:
  virtual ~SampleScorer() = default;

  /// False: requests are refused with status 503.
  virtual bool ready() const { return true; }
  /// Each of shape [-1]: one element for each sample.
  virtual std::vector<TensorMetadata> inputs() const = 0;
  /// Names of numbers of a pass, such as the version of its weights, that answers may state.
  virtual std::vector<std::string> numbers() const { return {}; }
  /// `request`: has `samples` elements in each of its inputs.
  virtual std::unique_ptr<const RequestSamples> read(const InferenceRequest& request,
                                                     std::int64_t samples) const = 0;
  /// The score of a sample must not depend on the other samples.
  virtual SampleScores score(std::span<const RequestSamples* const> requests) = 0;
  /// Calls `passes` once, when and where score() may compute, and returns after it. May return
  /// without the call if it never becomes ready.
  virtual void run(const std::function<void()>& passes) { passes(); }
};

}  // namespace strata
