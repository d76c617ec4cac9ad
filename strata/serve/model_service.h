/// Serves one language model to several callers at once, on the ranks of a mesh.
///
/// The ranks run passes in a loop. The rank that gets the logits decides what the next pass
/// computes, sends it to the other ranks, and chooses the tokens. While no request runs, the ranks
/// wait.
///
/// A request's tokens and log-probabilities depend on the request alone: not on other requests, on
/// how passes cut its prompt, on reused pages or on a preemption (serve/decoder.h says on which
/// processors).
///
/// Threads  any thread submits and cancels. Listeners are called by the deciding rank's thread,
///          which computes nothing meanwhile; they must not wait. After the ranks have ended, a
///          thread of the service calls them.
/// Errors   UserError: a cache without room for a page or for `context`, limits that contradict,
///          what plan_serving() refuses; sampling out of range, a prompt or answer that never fits,
///          a token that the model lacks (submit). SystemError: submit after the ranks have failed.
///          A request whose logits are no numbers ends with FinishReason::kFailed; the others
///          continue.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "strata/batching/token_service.h"
#include "strata/serve/served_model.h"
#include "strata/serve/service_options.h"
#include "strata/serve/serving_plan.h"

namespace strata {

class ModelService final : public TokenService {
 public:
  /// Starts the ranks of this process, which load the weights meanwhile.
  ModelService(ServedModel served, ServiceOptions options);
  /// Cancels running requests and ends the ranks.
  ~ModelService() override;

  /// Returns when the ranks of this process have their weights; throws what a rank threw.
  void wait_until_ready();
  /// Whether the ranks end within the time; throws what a rank threw.
  bool ends_within(std::chrono::milliseconds time);
  /// Whether the rank that decides runs in this process, so that it may submit. After
  /// wait_until_ready().
  bool decides() const;

  const ServingPlan& plan() const;

  /// Replaces the weights by those of another checkpoint of the same model, without losing a
  /// request: the old weights answer earlier requests, the new ones later requests. Returns when
  /// the ranks have the new ones, or false after refuse_loads(). In the process that decides; one
  /// thread at a time. UserError, and nothing changes: a file that is damaged or of another model.
  /// SystemError: the ranks have ended.
  bool load(const std::string& checkpoint);
  void refuse_loads();  ///< gives up a load() that still waits, and later ones

  Admission submit(SequenceRequest request, SequenceListener listener) override;
  void cancel(std::uint64_t id) override;
  ServiceStatus status() const override;
  std::int64_t context() const override;
  std::int64_t most_waiting() const override;
  std::int64_t vocabulary() const override;
  std::string weights() const override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
