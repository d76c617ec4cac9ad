/// Sends what a generation yields: as one JSON object, or as a stream of events, one a token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/http/routes.h"
#include "strata/openai/api_call.h"
#include "strata/openai/generation.h"

namespace strata {

/// Collects the choices of an answer and sends them at its end. Of `candidates` a prompt the
/// `choices` with the highest mean log probability are sent, best first.
class WholeAnswer final : public AnswerSink {
 public:
  WholeAnswer(ApiCall call, AnswerHead head, std::size_t choices, std::size_t candidates,
              std::size_t prompts);
  bool on_prompt(std::size_t choice, std::vector<TokenPiece> pieces) override;
  bool on_pieces(std::size_t choice, std::vector<TokenPiece> pieces) override;
  bool on_end(std::size_t choice, ChoiceEnd end) override;
  void on_done(const Usage& usage) override;
  void on_error(const ApiError& error) override;

 private:
  struct Candidate {
    ChoiceAnswer answer;
    double mean_log_probability = 0;
  };
  const ApiCall call_;
  const AnswerHead head_;
  const std::size_t choices_;
  const std::size_t candidates_of_prompt_;
  std::vector<Candidate> candidates_;
};

/// Writes server-sent events. The last token's chunk has the finish reason if the answer's length
/// or a stop string ends it; after an EOS token a chunk without text has it. "[DONE]" is last.
class StreamedAnswer final : public AnswerSink {
 public:
  StreamedAnswer(std::shared_ptr<HttpStream> stream, AnswerHead head, bool include_usage,
                 std::size_t choices);
  bool on_prompt(std::size_t choice, std::vector<TokenPiece> pieces) override;
  bool on_pieces(std::size_t choice, std::vector<TokenPiece> pieces) override;
  bool on_end(std::size_t choice, ChoiceEnd end) override;
  void on_done(const Usage& usage) override;
  void on_error(const ApiError& error) override;

 private:
  bool send(const std::string& json);
  bool begin(std::size_t choice);
  void finish();

  const std::shared_ptr<HttpStream> stream_;
  const ChunkJson chunks_;
  std::vector<bool> begun_;  // by choice: its role was sent
};

}  // namespace strata
