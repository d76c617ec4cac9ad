/// Serves one language model to several callers at once, on the ranks of a mesh.
///
/// The ranks run passes in a loop. The rank that gets the logits decides what the next pass computes,
/// sends it to the other ranks, and chooses the tokens. While no request runs, the ranks wait.
///
/// A request's tokens and log-probabilities depend on the request alone: not on other requests, on
/// how passes cut its prompt, on reused pages or on a preemption (serve/decoder.h says on which
/// processors).
///
/// Threads  any thread submits and cancels. Listeners are called by the deciding rank's thread, which
///          computes nothing meanwhile; they must not wait.
/// Errors   UserError: a budget without room for one sequence; sampling out of range, a prompt or
///          answer that never fits, a token that the model lacks (submit). SystemError: submit after
///          the ranks have failed. A request whose logits are no numbers ends with
///          FinishReason::kFailed; the others continue.
#pragma once

#include <cstdint>
#include <memory>

#include "strata/batching/token_service.h"
#include "strata/serve/text_generation.h"

namespace strata {

struct ServiceOptions {
  std::int64_t cache_bytes = std::int64_t{1} << 30;  ///< of keys and values, per rank
  std::int64_t page_tokens = 64;
  std::int64_t context = 0;        ///< tokens of the longest sequence; 0: the model's
  std::int64_t sequences = 16;     ///< running at once
  std::int64_t pass_tokens = 512;  ///< new tokens of a pass
  std::int64_t waiting = 256;      ///< requests
  std::int64_t guesses = 0;        ///< tokens guessed by n-grams of the sequence per pass
  bool reuse_pages = true;         ///< of equal beginnings of prompts
  std::function<void(const std::string&)> warn = {};  ///< as RanksOptions::warn
};

class ModelService final : public TokenService {
 public:
  /// Starts the ranks of this process, which load the weights meanwhile.
  ModelService(ServedModel served, ServiceOptions options);
  /// Cancels running requests and ends the ranks.
  ~ModelService() override;

  /// Returns when the ranks of this process have their weights; throws what a rank threw.
  void wait_until_ready();
  /// Returns when the ranks have ended; throws what a rank threw. Processes without the deciding
  /// rank wait here.
  void wait();
  /// Whether the rank that decides runs in this process, so that it may submit. After
  /// wait_until_ready().
  bool decides() const;

  Admission submit(SequenceRequest request, SequenceListener listener) override;
  void cancel(std::uint64_t id) override;
  ServiceStatus status() const override;
  std::int64_t context() const override;
  std::int64_t vocabulary() const override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
