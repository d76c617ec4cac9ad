/// Counts the requests of a model, and writes counts and the state of services for Prometheus:
/// under the names of vLLM, which boards and gateways read, and under Strata's own.
///
/// Threads  any.
/// Source   text format of Prometheus, version 0.0.4.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "strata/batching/token_service.h"

namespace strata {

/// Counts values by the smallest bound that they do not exceed.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);

  std::span<const double> bounds() const { return bounds_; }
  std::span<const std::int64_t> counts() const { return counts_; }  ///< the last: beyond all bounds
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;
  double sum_ = 0;
};

/// Requests that have ended in one way.
struct EndedRequests {
  std::int64_t count = 0;
  double seconds = 0;  ///< from their starts to their ends
};

/// What the requests of one model did.
struct RequestCounts {
  RequestCounts();
  /// "success", "abort" (the client left), "error", "refused" (the service had no room).
  std::map<std::string, EndedRequests> ended;
  std::int64_t last_end = 0;                     ///< milliseconds since 1970; 0: none
  std::map<std::string, std::int64_t> finished;  ///< choices by reason
  Histogram first_token_seconds, next_token_seconds, request_seconds;
  Histogram prompt_tokens, generated_tokens, choices, max_tokens;
};

class ModelMetrics {
 public:
  void started(std::size_t prompt_tokens, std::int64_t max_tokens, std::size_t choices);
  void first_token(double seconds);
  void next_token(double seconds);
  void choice_ended(const std::string& finish_reason, std::int64_t tokens);
  void ended(const std::string& outcome, double seconds);  ///< a key of RequestCounts::ended

  RequestCounts counts() const;

 private:
  mutable std::mutex mutex_;
  RequestCounts counts_;
};

struct ModelState {
  std::string name;
  ServiceStatus status;
  RequestCounts counts;
};

std::string prometheus_text(const std::vector<ModelState>& models);

}  // namespace strata
