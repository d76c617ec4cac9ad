/// Records one request for the metrics of its model and the limits of its key.
///
/// Threads  one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "strata/openai/answer_json.h"
#include "strata/openai/keys.h"
#include "strata/openai/metrics.h"

namespace strata {

class RequestRecord {
 public:
  RequestRecord(std::shared_ptr<ModelMetrics> metrics, std::shared_ptr<KeyUse> use)
      : metrics_(std::move(metrics)), use_(std::move(use)) {}

  void start(std::size_t prompt_tokens, std::int64_t max_tokens, std::size_t choices);
  void take_back();                ///< the service computes nothing: all tokens return to the key
  void token(std::size_t choice);  ///< a token of the choice has arrived
  void choice_ended(const std::string& finish_reason, std::int64_t tokens);
  /// Once: the request is over; returns unused tokens to its key.
  void end(const Usage& usage);

 private:
  void release(std::int64_t tokens);

  using Clock = std::chrono::steady_clock;
  std::shared_ptr<ModelMetrics> metrics_;
  std::shared_ptr<KeyUse> use_;
  Clock::time_point start_ = Clock::now();
  std::vector<Clock::time_point> last_token_ = {};  // by choice; start_: none yet
  std::string outcome_ = "success";                 // as ModelMetrics::ended()
  bool ended_ = false;
};

}  // namespace strata
