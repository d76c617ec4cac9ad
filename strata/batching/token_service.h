/// Continues sequences of tokens for several callers at once: what a front end needs of a server of
/// a model.
///
/// Threads  any thread may call a service. It calls a request's listener from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// How the next token is chosen from logits. Steps run in this order: penalties and biases,
/// temperature, top_k, top_p, min_p, draw.
struct Sampling {
  double temperature = 1;         ///< 0: the most likely token, the first if several are equal
  std::int64_t top_k = 0;         ///< 0: all tokens
  double top_p = 1;               ///< the likeliest tokens whose probabilities reach this sum
  double min_p = 0;               ///< share of the likeliest token's probability
  double presence_penalty = 0;    ///< subtracted once from tokens that the answer has
  double frequency_penalty = 0;   ///< subtracted for each time that the answer has the token
  double repetition_penalty = 1;  ///< divides positive logits of tokens of prompt and answer
  std::map<std::int64_t, double> biases = {};  ///< added to the logits of these tokens
  std::uint64_t seed = 0;  ///< draws are keyed by (seed, number of the token in the answer)
};

/// A token with natural logarithms of probabilities: of softmax(logits), before any step of
/// Sampling.
struct ScoredToken {
  std::int64_t token = 0;
  double log_probability = 0;
  std::vector<std::pair<std::int64_t, double>> likeliest = {};  ///< descending; ties by token
};

enum class FinishReason {
  kStop,       ///< a token that ends the text
  kLength,     ///< max_tokens, or the model's context is full
  kCancelled,  ///< the caller
  kFailed,     ///< the server; Finish::error says why
};
const char* name_of(FinishReason reason);

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::int64_t cached_tokens = 0;  ///< of the prompt, whose keys and values an earlier request left
  std::string error = {};          ///< of kFailed
};

/// What a caller learns of a request. Null functions are not called.
struct SequenceListener {
  /// With `score_prompt`, once, before the first token: all tokens of the prompt but the first,
  /// each scored after the tokens before it.
  std::function<void(std::vector<ScoredToken>)> on_prompt;
  /// With `embed`, once, before the first token: the model's state after the prompt's last token.
  std::function<void(std::vector<float>)> on_embedding = {};
  /// A chosen token; tokens of `ends` are not reported.
  std::function<void(const ScoredToken&)> on_token;
  /// Last call.
  std::function<void(const Finish&)> on_finish;
};

struct SequenceRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  std::int64_t max_tokens = 16;      ///< 0: only the prompt is scored
  std::int64_t min_tokens = 0;       ///< before that many tokens, those of `ends` are not chosen
  std::vector<std::int64_t> ends;    ///< tokens that end the text; they are not part of it
  Sampling sampling;
  /// Length of ScoredToken::likeliest. None: a ScoredToken has only its token, and log_probability
  /// is 0.
  std::optional<int> likeliest = {};
  std::uint64_t scope = 0;  ///< requests reuse keys and values only of requests of the same scope
  bool score_prompt = false;
  bool embed = false;
  /// Gives the tokens that may follow the answer so far, as bits by token; if no bit is set, the
  /// answer ends. Null: all may. The service calls it from one thread at a time.
  std::function<std::vector<std::uint64_t>(const std::vector<std::int64_t>& answer)> allowed = {};
};

struct Admission {
  std::uint64_t id = 0;  ///< 0: refused
  /// When a refused caller may succeed: from the tokens that running requests still need.
  std::chrono::milliseconds retry_after{0};
};

/// What a service does now and has done.
struct ServiceStatus {
  bool ready = false;
  std::int64_t running = 0;  ///< requests that have pages
  std::int64_t waiting = 0;
  std::int64_t pages = 0;  ///< in all
  std::int64_t used_pages = 0;
  std::int64_t prompt_tokens = 0;  ///< counters from the start on
  std::int64_t generated_tokens = 0;
  std::int64_t cached_prompt_tokens = 0;
  std::int64_t loaded_pages = 0;  ///< from the host or the disk
  std::int64_t preemptions = 0;
  std::int64_t refusals = 0;
  std::int64_t passes = 0;
  std::int64_t guessed_tokens = 0;  ///< that passes computed, of speculation
  std::int64_t accepted_guesses = 0;
};

class TokenService {
 public:
  virtual ~TokenService() = default;
  virtual Admission submit(SequenceRequest request, SequenceListener listener) = 0;
  /// Ends a request soon; unknown ids are ignored. The listener still gets on_finish.
  virtual void cancel(std::uint64_t id) = 0;
  virtual ServiceStatus status() const = 0;
  virtual std::int64_t context() const = 0;       ///< tokens of the longest sequence
  virtual std::int64_t most_waiting() const = 0;  ///< sequences that may wait at once
  virtual std::int64_t vocabulary() const = 0;    ///< tokens of the model
  /// Names the weights that compute now: the checkpoint's folder or file. An answer is computed by
  /// one set of weights; from its first token to on_finish this is their name.
  virtual std::string weights() const = 0;
};

}  // namespace strata
