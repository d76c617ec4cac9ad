#include "strata/kserve/model/text_model.h"

#include <optional>
#include <utility>

#include "strata/kserve/model/text_request.h"
#include "strata/openai/api_error.h"
#include "strata/openai/generation_start.h"

namespace strata {
namespace {

// The outputs of one answer.
struct TextPart {
  std::string text, finish_reason;
  std::vector<TokenPiece> pieces = {};

  void add(TokenPiece piece) {
    text += piece.text;
    pieces.push_back(std::move(piece));
  }

  Tensor tensor(const std::string& name) const {
    const auto count = static_cast<std::int64_t>(pieces.size());
    if (name == kOutputIds) {
      Tensor ids{name, Datatype::kInt64, {count}};
      for (const TokenPiece& piece : pieces) append_value(ids.bytes, piece.id);
      return ids;
    }
    if (name == kLogProbabilities) {
      Tensor scores{name, Datatype::kFp32, {count}};
      for (const TokenPiece& piece : pieces)
        append_value(scores.bytes, static_cast<float>(piece.token.log_probability.value_or(0)));
      return scores;
    }
    Tensor texts{name, Datatype::kBytes, {1}};
    append_text(texts.bytes, name == kFinishReason ? finish_reason : text);
    return texts;
  }
};

/// Converts the pieces of a generation to answers: one, or one for each token.
class TextAnswers final : public AnswerSink {
 public:
  /// Consumes the outputs and the prefix of the request.
  TextAnswers(TextInference& request, std::shared_ptr<InferenceSink> sink)
      : outputs_(std::move(request.outputs)),
        stream_(request.answer.options.stream),
        sink_(std::move(sink)) {
    whole_.text = std::move(request.prefix);
  }

  bool on_prompt(std::size_t, std::vector<TokenPiece>) override { return true; }  // no echo

  bool on_pieces(std::size_t, std::vector<TokenPiece> pieces) override {
    for (TokenPiece& piece : pieces) {
      TextPart part;
      (stream_ ? part : whole_).add(std::move(piece));
      if (stream_ && !send(part, false)) return false;
    }
    return true;
  }

  bool on_end(std::size_t choice, ChoiceEnd end) override {
    std::optional<TokenPiece> last;
    if (!end.pieces.empty()) {
      last = std::move(end.pieces.back());
      end.pieces.pop_back();
    }
    if (!on_pieces(choice, std::move(end.pieces))) return false;
    if (last) whole_.add(std::move(*last));
    whole_.text += end.rest;
    whole_.finish_reason = end.finish_reason;
    return true;
  }

  void on_done(const Usage&) override { send(whole_, true); }
  void on_error(const ApiError& error) override { sink_->on_error(error); }

 private:
  bool send(const TextPart& part, bool last) {
    InferenceAnswer answer{.outputs = {}, .last = last};
    for (const std::string& output : outputs_) answer.outputs.push_back(part.tensor(output));
    return sink_->on_answer(std::move(answer));
  }

  const std::vector<std::string> outputs_;
  const bool stream_;
  const std::shared_ptr<InferenceSink> sink_;
  TextPart whole_;  // of a stream: the last answer
};

RequestTime time_of(const EndedRequests& requests) {
  return {.count = static_cast<std::uint64_t>(requests.count),
          .nanoseconds = static_cast<std::uint64_t>(requests.seconds * 1e9)};
}

}  // namespace

TextModel::TextModel(const OpenAiModel& model)
    : model_(std::make_shared<const OpenAiModel>(model)),
      description_{.name = model.name,
                   .platform = "strata_text",
                   .inputs = text_inputs(),
                   .outputs = text_outputs(),
                   .decoupled = true} {}

bool TextModel::ready() const { return model_->service->status().ready; }

ModelStatistics TextModel::statistics() const {
  const RequestCounts counts = model_->metrics->counts();
  const ServiceStatus status = model_->service->status();
  return {.success = time_of(counts.ended.at("success")),
          .failures = {{"BACKEND", time_of(counts.ended.at("error"))},
                       {"CANCELED", time_of(counts.ended.at("abort"))},
                       {"REJECTED", time_of(counts.ended.at("refused"))}},
          .executions = static_cast<std::uint64_t>(status.passes),
          .pending = status.waiting,
          .last_request = static_cast<std::uint64_t>(counts.last_end)};
}

std::function<void()> TextModel::infer(InferenceRequest request,
                                       std::shared_ptr<InferenceSink> sink) {
  refuse_unless_ready(*model_);
  TextInference text = read_text_request(request, *model_);
  const auto answers = std::make_shared<TextAnswers>(text, std::move(sink));
  const auto generation = start_generation(model_, std::move(text.answer), request.key);
  generation->begin(answers);
  return [left = std::weak_ptr(generation)] {
    if (const auto generation = left.lock()) generation->cancel();
  };
}

}  // namespace strata
