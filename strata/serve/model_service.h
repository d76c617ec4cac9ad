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
///          what plan_serving() and check_draft() refuse; sampling out of range, a prompt or answer that never fits,
///          a token that the model lacks (submit). SystemError: submit after the ranks have failed.
///          A request whose logits are no numbers ends with FinishReason::kFailed; the others
///          continue.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "strata/batching/token_service.h"
#include "strata/serve/served_model.h"
#include "strata/serve/serving_plan.h"

namespace strata {

struct ServiceOptions {
  /// Of keys and values, per rank. None: 1 GiB, or half of memory.device if that is less.
  std::optional<std::int64_t> cache_bytes = {};
  /// Of keys and values that no answer needs now, per rank: in host memory, and on the disk.
  std::int64_t host_cache_bytes = 0;
  std::int64_t disk_cache_bytes = 0;
  /// Tokens of the longest sequence; 0: the model's, or what the cache has room for if that is
  /// less.
  std::int64_t context = 0;
  std::int64_t sequences = 16;     ///< running at once
  std::int64_t pass_tokens = 512;  ///< new tokens of a pass
  std::int64_t waiting = 256;      ///< requests
  std::int64_t guesses = 0;        ///< tokens guessed of each sequence per pass
  /// The model that guesses them, whole on the rank that decides; its checkpoint stays. None:
  /// n-grams of the sequence do.
  std::optional<ServedModel> draft = {};
  std::chrono::milliseconds longest_wait{0};  ///< as BatchLimits::longest_wait
  /// Called with a sentence about a stalled rank, and with the error of a request that the model
  /// failed; from several threads. May be null.
  std::function<void(const std::string&)> warn = {};
};

/// What a service with these options plans; `model`: made for the tensor-parallel ranks of
/// `served`.
ServingRequest serving_request(const ServedModel& served, const Sequential& model,
                               const ServiceOptions& options);

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
