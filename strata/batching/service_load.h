/// Measures what clients of a service see if each sends its next request when it has its answer.
///
/// Prompts are random tokens that no two requests share, so no request reuses pages of another one.
///
/// Threads  the caller waits; the service's thread reports tokens.
/// Errors   SystemError: an answer that failed. What TokenService::submit() throws.
#pragma once

#include <chrono>
#include <cstdint>

#include "strata/batching/token_service.h"

namespace strata {

struct ServiceLoad {
  std::int64_t clients = 1;          ///< answers at once
  std::int64_t prompt_tokens = 128;  ///< of a request
  std::int64_t answer_tokens = 64;   ///< of a request, at least 2
  /// Of the measurement, after each client has an answer; longer if until then not as many answers
  /// have ended as there are clients.
  std::chrono::milliseconds time{5000};
};

/// Seconds of many events.
struct Waits {
  double median = 0;
  double most = 0;  ///< of 99 of 100
};

struct ServiceRates {
  std::int64_t answers = 0;             ///< that ended
  double seconds = 0;                   ///< of the measurement
  double tokens_per_second = 0;         ///< of answers
  double prompt_tokens_per_second = 0;  ///< of answers that ended
  Waits first_token;                    ///< from the request to its first token
  Waits between_tokens;                 ///< of an answer
};

ServiceRates measure_load(TokenService& service, const ServiceLoad& load);

}  // namespace strata
