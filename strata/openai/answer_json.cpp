#include "strata/openai/answer_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/json_text.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastLogProbability = -9999;  // JSON has no infinity

double finite(double log_probability) {
  return log_probability >= kLeastLogProbability ? log_probability : kLeastLogProbability;
}

Json score_or_null(const NamedToken& token) {
  return token.log_probability ? Json(finite(*token.log_probability)) : Json(nullptr);
}

// The alternatives by name, and the token itself. Of two tokens with one name the likelier stays.
Json alternatives_by_name(const TokenPiece& piece) {
  if (!piece.token.log_probability) return nullptr;
  Json names = Json::object();
  for (const NamedToken& token : piece.likeliest)
    if (!names.contains(token.name)) names[token.name] = score_or_null(token);
  if (!names.contains(piece.token.name)) names[piece.token.name] = score_or_null(piece.token);
  return names;
}

Json completion_scores(const std::vector<TokenPiece>& pieces) {
  Json names = Json::array(), scores = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const TokenPiece& piece : pieces) {
    names.push_back(piece.token.name);
    scores.push_back(score_or_null(piece.token));
    tops.push_back(alternatives_by_name(piece));
    offsets.push_back(piece.offset);
  }
  return {{"tokens", names},
          {"token_logprobs", scores},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

Json chat_score(const NamedToken& token) {
  Json bytes = Json::array();
  for (const unsigned char byte : token.bytes) bytes.push_back(static_cast<int>(byte));
  return {{"token", token.name}, {"logprob", score_or_null(token)}, {"bytes", bytes}};
}

Json chat_scores(const std::vector<TokenPiece>& pieces) {
  Json content = Json::array();
  for (const TokenPiece& piece : pieces) {
    Json entry = chat_score(piece.token);
    entry["top_logprobs"] = Json::array();
    for (const NamedToken& token : piece.likeliest)
      entry["top_logprobs"].push_back(chat_score(token));
    content.push_back(std::move(entry));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json scores_json(const AnswerHead& head, const std::vector<TokenPiece>& pieces) {
  if (!head.scored) return nullptr;
  return head.kind == AnswerKind::kChat ? chat_scores(pieces) : completion_scores(pieces);
}

Json head_json(const AnswerHead& head, const char* chat_object) {
  const bool chat = head.kind == AnswerKind::kChat;
  return {{"id", head.id},
          {"object", chat ? chat_object : "text_completion"},
          {"created", head.created},
          {"model", head.model}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// A member that follows others.
std::string weights_member(const AnswerHead& head) {
  return head.weights ? ",\"system_fingerprint\":" + json_text(Json(head.weights())) : "";
}

// The object's text without its last brace.
std::string open_object(const Json& object) {
  std::string text = json_text(object);
  text.pop_back();
  return text;
}

}  // namespace

Json whole_answer(const AnswerHead& head, const std::vector<ChoiceAnswer>& choices,
                  const Usage& usage) {
  Json answer = head_json(head, "chat.completion");
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    if (head.kind == AnswerKind::kChat)
      choice["message"] = {
          {"role", "assistant"}, {"content", choices[i].text}, {"refusal", nullptr}};
    else
      choice["text"] = choices[i].text;
    choice["logprobs"] = scores_json(head, choices[i].pieces);
    choice["finish_reason"] = choices[i].finish_reason;
    answer["choices"].push_back(std::move(choice));
  }
  answer["usage"] = usage_json(usage);
  if (head.weights) answer["system_fingerprint"] = head.weights();
  return answer;
}

ChunkJson::ChunkJson(AnswerHead head, bool include_usage)
    : head_(std::move(head)),
      include_usage_(include_usage),
      begin_(open_object(head_json(head_, "chat.completion.chunk")) + ",\"choices\":[") {}

std::string ChunkJson::chunk(const Json& choice, const std::string& weights) const {
  return begin_ + json_text(choice) + "]" + weights + (include_usage_ ? ",\"usage\":null}" : "}");
}

std::string ChunkJson::role(std::size_t choice) const {
  return chunk({{"index", choice},
                {"delta", {{"role", "assistant"}, {"content", ""}}},
                {"logprobs", nullptr},
                {"finish_reason", nullptr}},
               /*weights=*/"");
}

std::string ChunkJson::pieces(std::size_t choice, const std::string& text,
                              const std::vector<TokenPiece>& pieces,
                              const std::string& finish_reason) const {
  Json part = {{"index", choice}};
  if (head_.kind == AnswerKind::kCompletion)
    part["text"] = text;
  else
    part["delta"] = pieces.empty() && text.empty() ? Json::object() : Json{{"content", text}};
  part["logprobs"] = pieces.empty() ? Json(nullptr) : scores_json(head_, pieces);
  part["finish_reason"] = finish_reason.empty() ? Json(nullptr) : Json(finish_reason);
  return chunk(part, weights_member(head_));
}

std::string ChunkJson::usage(const Usage& usage) const {
  return begin_ + "]" + weights_member(head_) + ",\"usage\":" + json_text(usage_json(usage)) + '}';
}

}  // namespace strata
