/// Decides, on the rank that gets the logits, what each pass computes, and answers the requests.
///
/// Threads  one thread calls next_pass(), loaded() and consume() in turn; any thread calls the
///          others.
/// Errors   as ModelService::submit().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "strata/batching/batch_scheduler.h"
#include "strata/batching/sampler.h"
#include "strata/batching/token_service.h"
#include "strata/serve/answer.h"
#include "strata/serve/pass_message.h"

namespace strata {

/// Chooses a guess for a row of a batch, after `guesses`, from a draft model's logits, [V].
using ChooseGuess = std::function<std::int64_t(std::size_t row, std::span<const float> logits,
                                               std::span<const std::int64_t> guesses)>;
/// Replaces the guesses at the ends of a batch's rows (serve/draft_model.h).
using GuessTokens = std::function<void(Batch& batch, const ChooseGuess& choose)>;

struct RequestLoopOptions {
  BatchLimits limits;
  std::int64_t vocabulary = 0;
  std::int64_t guesses = 0;  ///< as ServiceOptions::guesses
  bool drafts = false;       ///< guesses come from draft(), not from n-grams
  std::string weights = {};  ///< name of the first weights
  /// Called with the error of a request that the model failed; may be null.
  std::function<void(const std::string&)> warn = {};
};

class RequestLoop {
 public:
  explicit RequestLoop(const RequestLoopOptions& options);

  Admission submit(SequenceRequest request, SequenceListener listener);
  void cancel(std::uint64_t id);
  ServiceStatus status() const;
  /// Ends the loop: the next order is kStop.
  void stop();
  /// Ends all requests, with kCancelled or, with an error, with kFailed; submit() then throws.
  void end(const std::string& error = {});

  /// Replaces the weights by those of a checkpoint, under a new name: lets earlier requests end,
  /// then orders kLoad; later requests wait. Returns when the ranks have the weights, or false
  /// after refuse_loads(). One thread at a time.
  bool load(const std::string& checkpoint, const std::string& name);
  /// Gives up a load() that still waits for requests, and every later one.
  void refuse_loads();
  std::string weights() const;  ///< name

  /// Waits for a request; kWait after a second without one.
  PassMessage next_pass();
  /// With `drafts`, after an order kRun: the pass, with the guesses of `guess`.
  const Pass& draft(const GuessTokens& guess);
  void loaded();  ///< after kLoad, when the ranks have the weights
  /// Answers the requests of the pass that next_pass() returned. `logits` [rows, V] and `states`
  /// [rows, C], in its order; `states` may be empty if no request wants an embedding.
  void consume(std::span<const float> logits, std::span<const float> states = {});

 private:
  // What a pass has shown of a request.
  struct Progress {
    std::vector<std::int64_t> tokens;  // to append to the sequence
    std::optional<FinishReason> finish;
    std::string error;
  };
  using Lock = std::unique_lock<std::mutex>;

  void end_load();  // requires the mutex
  void guess();
  Progress answer(Answer& answer, const BatchRow& row, const PassTokens& tokens,
                  std::span<const float> logits, std::span<const float> states);
  void finish(Lock& lock, std::uint64_t id, FinishReason reason, const std::string& error = {});
  void finish_cancelled(Lock& lock);

  RequestLoopOptions options_;
  LogitSampler sampler_;
  Batch batch_;  // of the pass that runs
  std::chrono::steady_clock::time_point pass_start_;

  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  BatchScheduler scheduler_;
  std::map<std::uint64_t, std::shared_ptr<Answer>> answers_;
  std::set<std::uint64_t> cancelled_;  // that still have an answer
  std::string checkpoint_;             // to load; empty: none
  bool loads_ = false;                 // the ranks load it
  bool refuses_loads_ = false;
  std::string weights_, next_weights_;  // names
  std::uint64_t version_ = 0;
  bool stops_ = false;
  bool ended_ = false;
};

}  // namespace strata
