#include "strata/openai/answer_sinks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

std::string text_of(const std::vector<TokenPiece>& pieces) {
  std::string text;
  for (const TokenPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace

WholeAnswer::WholeAnswer(ApiCall call, AnswerHead head, std::size_t choices, std::size_t candidates,
                         std::size_t prompts)
    : call_(std::move(call)),
      head_(std::move(head)),
      choices_(choices),
      candidates_of_prompt_(candidates),
      candidates_(candidates * prompts) {}

bool WholeAnswer::on_prompt(std::size_t choice, std::vector<TokenPiece> pieces) {
  return on_pieces(choice, std::move(pieces));
}

bool WholeAnswer::on_pieces(std::size_t choice, std::vector<TokenPiece> pieces) {
  ChoiceAnswer& answer = candidates_[choice].answer;
  answer.text += text_of(pieces);
  if (head_.scored) std::ranges::move(pieces, std::back_inserter(answer.pieces));
  return true;
}

bool WholeAnswer::on_end(std::size_t choice, ChoiceEnd end) {
  on_pieces(choice, std::move(end.pieces));
  candidates_[choice].answer.text += end.rest;
  candidates_[choice].answer.finish_reason = end.finish_reason;
  candidates_[choice].mean_log_probability = end.mean_log_probability;
  return true;
}

void WholeAnswer::on_done(const Usage& usage) {
  std::vector<ChoiceAnswer> answers;
  for (std::size_t first = 0; first < candidates_.size(); first += candidates_of_prompt_) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = first; i < first + candidates_of_prompt_; ++i)
      order.emplace_back(-candidates_[i].mean_log_probability, i);
    if (choices_ < candidates_of_prompt_) std::ranges::sort(order);
    for (std::size_t i = 0; i < choices_; ++i)
      answers.push_back(std::move(candidates_[order[i].second].answer));
  }
  call_.answer(whole_answer(head_, answers, usage));
}

void WholeAnswer::on_error(const ApiError& error) { call_.refuse(error); }

StreamedAnswer::StreamedAnswer(std::shared_ptr<HttpStream> stream, AnswerHead head,
                               bool include_usage, std::size_t choices)
    : stream_(std::move(stream)), chunks_(std::move(head), include_usage), begun_(choices, false) {}

bool StreamedAnswer::send(const std::string& json) {
  return stream_->write("data: " + json + "\n\n");
}

bool StreamedAnswer::begin(std::size_t choice) {
  if (!chunks_.has_roles() || begun_[choice]) return true;
  begun_[choice] = true;
  return send(chunks_.role(choice));
}

bool StreamedAnswer::on_prompt(std::size_t choice, std::vector<TokenPiece> pieces) {
  return send(chunks_.pieces(choice, text_of(pieces), pieces, ""));
}

bool StreamedAnswer::on_pieces(std::size_t choice, std::vector<TokenPiece> pieces) {
  if (!begin(choice)) return false;
  std::vector<TokenPiece> one(1);
  for (TokenPiece& piece : pieces) {
    one.front() = std::move(piece);
    if (!send(chunks_.pieces(choice, one.front().text, one, ""))) return false;
  }
  return true;
}

bool StreamedAnswer::on_end(std::size_t choice, ChoiceEnd end) {
  std::vector<TokenPiece> last;
  if (!end.pieces.empty()) {
    last.push_back(std::move(end.pieces.back()));
    end.pieces.pop_back();
  }
  if (!on_pieces(choice, std::move(end.pieces))) return false;
  return send(chunks_.pieces(choice, text_of(last) + end.rest, last, end.finish_reason));
}

void StreamedAnswer::on_done(const Usage& usage) {
  if (chunks_.has_usage()) send(chunks_.usage(usage));
  finish();
}

void StreamedAnswer::on_error(const ApiError& error) {
  send(json_text(error.json()));
  finish();
}

void StreamedAnswer::finish() {
  stream_->write("data: [DONE]\n\n");
  stream_->finish();
}

}  // namespace strata
