#include "strata/openai/choice_text.h"

#include <algorithm>
#include <utility>

#include "strata/base/utf8.h"

namespace strata {
namespace {

std::int64_t characters_of(std::string_view text) {
  return std::ranges::count_if(text,
                               [](char c) { return static_cast<unsigned char>(c) >> 6 != 0b10; });
}

// As OpenAI names tokens that are part of a character.
std::string bytes_name(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const unsigned char byte : bytes)
    name += std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
  return name;
}

}  // namespace

ChoiceText::ChoiceText(const OpenAiModel& model, std::span<const std::int64_t> prompt,
                       const AnswerOptions& options, bool echo)
    : model_(model),
      prompt_(prompt),
      scored_(options.likeliest.has_value()),
      stream_(*model.tokenizer, echo ? std::span<const std::int64_t>{} : prompt),
      stops_(options.stops) {}

NamedToken ChoiceText::named(std::int64_t token, std::optional<double> log_probability) const {
  NamedToken named{
      .name = {}, .bytes = stream_.bytes_of(token), .log_probability = log_probability};
  const auto special = model_.token_names.find(token);
  if (named.bytes.empty())
    named.name =
        special != model_.token_names.end() ? special->second : "token_id:" + std::to_string(token);
  else if (utf8_bytes(named.bytes) == named.bytes.size())
    named.name = named.bytes;
  else
    named.name = bytes_name(named.bytes);
  return named;
}

// Before the token is pushed: its bytes depend on the tokens before it.
TokenPiece ChoiceText::piece_of(const ScoredToken& token) const {
  TokenPiece piece{.text = {}, .id = token.token, .offset = characters_};
  if (!scored_) return piece;
  piece.token = named(token.token, token.log_probability);
  for (const auto& [each, log_probability] : token.likeliest)
    piece.likeliest.push_back(named(each, log_probability));
  return piece;
}

std::vector<TokenPiece> ChoiceText::prompt(const std::vector<ScoredToken>& scores) {
  std::vector<TokenPiece> pieces;
  for (std::size_t i = 0; i < prompt_.size(); ++i) {
    TokenPiece piece{.text = {}, .id = prompt_[i], .offset = characters_};
    if (i > 0 && i <= scores.size())
      piece = piece_of(scores[i - 1]);
    else if (scored_)
      piece.token = named(prompt_[i], std::nullopt);
    piece.text = stream_.push(prompt_[i]);
    characters_ += characters_of(piece.text);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<TokenPiece> ChoiceText::push(const ScoredToken& token) {
  TokenPiece piece = piece_of(token);
  piece.text = stream_.push(token.token);
  characters_ += characters_of(piece.text);
  certain_bytes_ += stops_.push(piece.text).size();
  held_.push_back({std::move(piece), bytes_});
  bytes_ += held_.back().piece.text.size();
  return certain();
}

std::vector<TokenPiece> ChoiceText::push_end(const ScoredToken& token) {
  held_.push_back({piece_of(token), bytes_});
  return certain();
}

std::vector<TokenPiece> ChoiceText::certain() {
  std::vector<TokenPiece> pieces;
  while (!held_.empty()) {
    auto& [piece, begin] = held_.front();
    if (stopped()) {
      if (begin >= certain_bytes_) break;
      piece.text.resize(std::min(piece.text.size(), certain_bytes_ - begin));
    } else if (begin + piece.text.size() > certain_bytes_) {
      break;
    }
    pieces.push_back(std::move(piece));
    held_.pop_front();
  }
  if (stopped()) held_.clear();
  return pieces;
}

std::vector<TokenPiece> ChoiceText::finish(std::string& rest) {
  if (stopped()) return {};
  const std::string last = stream_.finish();
  certain_bytes_ += stops_.push(last).size();
  if (stopped()) return certain();
  certain_bytes_ += stops_.finish().size();
  if (held_.empty())
    rest += last;
  else
    held_.back().piece.text += last;
  return certain();
}

}  // namespace strata
