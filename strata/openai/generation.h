/// Runs the sequences of one request, a sequence a choice, and hands their pieces to a sink.
///
/// The sequences are submitted together: if the service refuses one, all are withdrawn. A stop
/// string, a sink that returns false and cancel() end sequences early.
///
/// Threads  any. The sink gets one call at a time. The service is never called while this object's
///          mutex is held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/openai/answer_json.h"
#include "strata/openai/choice_text.h"
#include "strata/openai/completion_request.h"
#include "strata/openai/request_record.h"

namespace strata {

class ApiError;

struct ChoiceEnd {
  std::vector<TokenPiece> pieces;  ///< the last ones
  std::string rest;                ///< text after the pieces
  std::string finish_reason;
  double mean_log_probability = 0;  ///< of the choice's tokens
};

/// Choices are numbered by prompt: all of the first prompt, then all of the second.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// With echo: the prompt's pieces, before others.
  virtual bool on_prompt(std::size_t choice, std::vector<TokenPiece> pieces) = 0;
  /// False: the client has gone.
  virtual bool on_pieces(std::size_t choice, std::vector<TokenPiece> pieces) = 0;
  /// With embeds: the model's state after the prompt's last token, before on_end().
  virtual void on_embedding(std::size_t choice, std::vector<float> state);
  virtual bool on_end(std::size_t choice, ChoiceEnd end) = 0;
  virtual void on_done(const Usage& usage) = 0;      ///< last call, unless there is an error
  virtual void on_error(const ApiError& error) = 0;  ///< last call
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<const OpenAiModel> model, AnswerRequest request, RequestRecord record);

  /// Submits all sequences. Throws ApiError 429 if the service has no room, with the time after
  /// which it may have, and what the service throws; then no sequence runs on, and the key has its
  /// tokens back.
  void submit();

  /// Begins to call the sink; before, what the service reports is kept.
  void begin(std::shared_ptr<AnswerSink> sink);

  void cancel();

 private:
  struct Sequence {
    std::size_t prompt;
    ChoiceText text;
    std::uint64_t id = 0;
    std::int64_t tokens = 0;
    double log_probability = 0;  // sum
    bool has_prompt = false;     // the echo was handed over, or there is none
    bool stopped = false;        // by a stop string or an EOS token: later tokens are ignored
    bool finished = false;       // on_finish came
    std::vector<TokenPiece> last = {};  // pieces for ChoiceEnd
    // Why the grammar cannot continue the answer. The service sets it before it reports a failure.
    std::shared_ptr<std::unique_ptr<ApiError>> refusal =
        std::make_shared<std::unique_ptr<ApiError>>();
  };

  SequenceRequest sequence_request(std::size_t choice) const;
  bool only_one_token_is_scored() const;
  std::vector<std::int64_t> ends() const;
  SequenceListener listener(std::size_t choice);
  void submit_all();
  void take_back();
  template <typename Part>
  void deliver(void (Generation::*handle)(std::size_t, const Part&), std::size_t choice,
               const Part& part);
  std::vector<std::uint64_t> take_unwanted();
  void cancel_all(const std::vector<std::uint64_t>& ids);
  void on_prompt(std::size_t choice, const std::vector<ScoredToken>& scores);
  void on_embedding(std::size_t choice, const std::vector<float>& state);
  void on_token(std::size_t choice, const ScoredToken& token);
  void on_finish(std::size_t choice, const Finish& finish);
  void end_choice(Sequence& sequence, std::size_t choice, const Finish& finish);
  void fail(const ApiError& error);
  void forget_sink(const char* reason);
  void close();

  const std::shared_ptr<const OpenAiModel> model_;
  const AnswerRequest request_;
  RequestRecord record_;

  std::mutex mutex_;
  std::vector<Sequence> sequences_;
  std::vector<std::function<void()>> early_;  // events before begin()
  std::shared_ptr<AnswerSink> sink_;          // null before begin() and after the end
  bool over_ = false;
  std::vector<std::size_t> unwanted_;  // choices that the service is to end
  std::size_t finished_ = 0;
  Usage usage_;
};

}  // namespace strata
