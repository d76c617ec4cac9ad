#include "strata/openai/answer_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>

#include "strata/openai/api_error.h"

namespace strata {
namespace {

constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 1024;

struct UnsupportedField {
  const char* name;
  const char* reason;
  nlohmann::json neutral = nullptr;
};

const std::vector<UnsupportedField>& unsupported_fields() {
  static const std::vector<UnsupportedField> kFields = {
      {"tools", "the server calls no tools"},
      {"functions", "the server calls no functions"},
      {"audio", "the model writes text"},
      {"modalities", "the model writes text", nlohmann::json::array({"text"})},
      {"web_search_options", "the server searches nothing"},
      {"suffix", "the model continues texts only at their end"},
      {"prompt_embeds", "a prompt is a text or tokens"},
      {"use_beam_search", "tokens are drawn one by one"},
      {"prompt_logprobs", "use echo and logprobs of /v1/completions"},
      {"truncate_prompt_tokens", "shorten the prompt"},
      {"bad_words", "use logit_bias"},
      {"allowed_token_ids", "use logit_bias"},
      {"logits_processors", "use logit_bias"},
      {"return_token_ids", ""},
      {"return_tokens_as_token_ids", ""},
      {"include_stop_str_in_output", "answers end before a stop string"},
      {"continue_final_message", "use /v1/completions"},
  };
  return kFields;
}

std::vector<std::string> read_stops(const RequestFields& fields) {
  std::vector<std::string> stops = fields.texts("stop");
  if (stops.size() > kMaxStops)
    refuse_field("stop", "at most " + std::to_string(kMaxStops) + " texts",
                 std::to_string(stops.size()));
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > kMaxStopBytes)
      refuse_field("stop", "texts of 1 to " + std::to_string(kMaxStopBytes) + " bytes",
                   std::to_string(stop.size()) + " bytes");
  return stops;
}

std::map<std::int64_t, double> read_biases(const RequestFields& fields, std::int64_t vocabulary) {
  std::map<std::int64_t, double> biases;
  const nlohmann::json* value = fields.find("logit_bias");
  if (value == nullptr) return biases;
  const std::string expected =
      "an object of numbers from -100 to 100 by token, below " + std::to_string(vocabulary);
  if (!value->is_object()) refuse_field("logit_bias", expected, short_json(*value));
  for (const auto& [key, bias] : value->items()) {
    std::int64_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    const bool known =
        error == std::errc{} && end == key.data() + key.size() && token >= 0 && token < vocabulary;
    const double number = bias.is_number() ? bias.get<double>() : 1000;
    if (!known || !(number >= -100 && number <= 100))
      refuse_field("logit_bias", expected, short_json(nlohmann::json{{key, bias}}));
    biases[token] = number;
  }
  return biases;
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

Sampling read_sampling(const RequestFields& fields, std::int64_t vocabulary) {
  Sampling sampling;
  sampling.temperature = fields.real("temperature", 1, 0, 100);
  sampling.top_k = std::max<std::int64_t>(0, fields.whole("top_k", 0, -1, INT32_MAX));
  sampling.top_p = fields.real("top_p", 1, 0, 1);
  sampling.min_p = fields.real("min_p", 0, 0, 1);
  sampling.presence_penalty = fields.real("presence_penalty", 0, -2, 2);
  sampling.frequency_penalty = fields.real("frequency_penalty", 0, -2, 2);
  sampling.repetition_penalty = fields.real("repetition_penalty", 1, 0.01, 100);
  sampling.biases = read_biases(fields, vocabulary);
  sampling.seed = fields.find("seed") == nullptr
                      ? random_seed()
                      : static_cast<std::uint64_t>(fields.whole("seed", 0, INT64_MIN, INT64_MAX));
  return sampling;
}

bool is_neutral(const nlohmann::json& value, const nlohmann::json& neutral) {
  if (value == neutral || value == false) return true;
  return (value.is_structured() && value.empty()) || value == "";
}

void read_stream(const RequestFields& fields, AnswerOptions& options) {
  options.stream = fields.flag("stream", false);
  if (fields.find("stream_options") == nullptr) return;
  if (!options.stream) refuse_without("stream_options", "'stream': true");
  const RequestFields inner = fields.inner("stream_options");
  options.include_usage = inner.flag("include_usage", false);
  refuse_if_set(inner, "continuous_usage_stats", "use include_usage");
}

}  // namespace

void refuse_if_set(const RequestFields& fields, const std::string& field, const std::string& reason,
                   const nlohmann::json& neutral) {
  const nlohmann::json* value = fields.find(field);
  if (value != nullptr && !is_neutral(*value, neutral))
    refuse_unsupported(fields.place(field), reason);
}

AnswerOptions read_answer_options(const RequestFields& fields, std::int64_t vocabulary) {
  for (const UnsupportedField& field : unsupported_fields())
    refuse_if_set(fields, field.name, field.reason, field.neutral);
  if (!fields.flag("skip_special_tokens", true))
    refuse_unsupported("skip_special_tokens", "special tokens have no text");
  AnswerOptions options;
  options.min_tokens = fields.whole("min_tokens", 0, 0, INT32_MAX);
  options.ignore_ends = fields.flag("ignore_eos", false);
  options.stops = read_stops(fields);
  options.stop_tokens = fields.tokens("stop_token_ids", vocabulary);
  options.sampling = read_sampling(fields, vocabulary);
  options.choices = options.candidates = static_cast<int>(fields.whole("n", 1, 1, kMaxChoices));
  read_stream(fields, options);
  return options;
}

}  // namespace strata
