#include "strata/kserve/model/text_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "strata/base/utf8.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

using Json = nlohmann::json;

// Clients of the vLLM backend send these as texts, too: {"temperature": "0.1"}.
constexpr std::array<std::string_view, 14> kNumbers = {"max_tokens",
                                                       "min_tokens",
                                                       "temperature",
                                                       "top_p",
                                                       "top_k",
                                                       "min_p",
                                                       "seed",
                                                       "n",
                                                       "best_of",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "repetition_penalty",
                                                       "ignore_eos",
                                                       "stream"};

struct UnsupportedField {
  const char *field, *instead;
};
constexpr std::array<UnsupportedField, 10> kUnsupportedFields = {{
    {"prompt", "use the input text_input or input_ids"},
    {"echo", "use the input exclude_input_in_output"},
    {"logprobs", "request the output log_probabilities"},
    {"stream_options", "answers have no usage"},
    {"sequence_id", "requests have no sequences"},
    {"sequence_start", "requests have no sequences"},
    {"sequence_end", "requests have no sequences"},
    {"priority", "requests start in the order in which they come"},
    {"timeout", "use a deadline of the client"},
    {"lora_name", "the server has no adapters"},
}};

const Tensor* find_input(const InferenceRequest& request, std::string_view name) {
  const auto found = std::ranges::find(request.inputs, name, &Tensor::name);
  return found == request.inputs.end() ? nullptr : &*found;
}

std::optional<bool> read_flag(const InferenceRequest& request, const char* name) {
  const Tensor* tensor = find_input(request, name);
  if (tensor == nullptr) return std::nullopt;
  return tensor->bytes.front() != 0;
}

std::optional<std::string> read_text(const InferenceRequest& request, const char* name) {
  const Tensor* tensor = find_input(request, name);
  if (tensor == nullptr) return std::nullopt;
  const std::string_view text = texts_of(*tensor).front();
  if (utf8_bytes(text) != text.size()) refuse_tensor(name, "is not UTF-8");
  return std::string(text);
}

// The value that a text such as "0.1" states; other texts stay.
Json number_of(const Json& value) {
  if (!value.is_string()) return value;
  const Json number = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
  return number.is_number() || number.is_boolean() ? number : value;
}

Json read_fields(const InferenceRequest& request) {
  Json fields = request.parameters;
  if (const auto text = read_text(request, kSamplingParameters); text && !text->empty())
    fields.update(RequestFields(*text, kSamplingParameters).value());
  for (const std::string_view name : kNumbers)
    if (const auto field = fields.find(name); field != fields.end()) *field = number_of(*field);
  return fields;
}

// The flag of an input, else that of a field, which is removed.
std::optional<bool> take_flag(const InferenceRequest& request, const char* name, Json& fields) {
  std::optional<bool> flag = read_flag(request, name);
  const auto field = fields.find(name);
  if (field == fields.end()) return flag;
  const Json value = number_of(*field);
  if (!value.is_boolean()) refuse_field(name, "true or false", short_json(value));
  fields.erase(field);
  return flag ? flag : value.get<bool>();
}

Json read_prompt(const InferenceRequest& request) {
  const Tensor* ids = find_input(request, kInputIds);
  std::optional<std::string> text = read_text(request, kTextInput);
  if ((ids != nullptr) == text.has_value())
    throw ApiError({.message = "a request needs one of the inputs text_input and input_ids",
                    .param = kTextInput,
                    .code = "invalid_value"});
  return text ? Json(std::move(*text)) : Json(values_of<std::int64_t>(*ids));
}

// Whether the answer begins with the prompt: by default if it is one answer.
bool includes_prompt(std::optional<bool> excludes, bool stream) {
  if (stream && excludes == false)
    refuse_tensor(kExcludeInput, "must be true for a stream, which has no prompt");
  return !excludes.value_or(stream);
}

std::vector<std::string> wanted_outputs(const InferenceRequest& request) {
  return request.outputs.empty() ? std::vector<std::string>{kTextOutput} : request.outputs;
}

void refuse_several_answers(const AnswerOptions& options) {
  if (options.choices > 1) refuse_unsupported("n", "a request has one answer");
  if (options.candidates > 1) refuse_unsupported("best_of", "a request has one answer");
}

}  // namespace

std::vector<TensorMetadata> text_inputs() {
  return {{kTextInput, Datatype::kBytes, {1}, true},
          {kInputIds, Datatype::kInt64, {-1}, true},
          {kStream, Datatype::kBool, {1}, true},
          {kSamplingParameters, Datatype::kBytes, {1}, true},
          {kExcludeInput, Datatype::kBool, {1}, true}};
}

std::vector<TensorMetadata> text_outputs() {
  return {{kTextOutput, Datatype::kBytes, {1}, false},
          {kOutputIds, Datatype::kInt64, {-1}, true},
          {kLogProbabilities, Datatype::kFp32, {-1}, true},
          {kFinishReason, Datatype::kBytes, {1}, true}};
}

TextInference read_text_request(const InferenceRequest& request, const OpenAiModel& model) {
  TextInference text{.answer = {}, .prefix = {}, .outputs = wanted_outputs(request)};
  Json fields = read_fields(request);
  const bool stream = take_flag(request, kStream, fields).value_or(false);
  const std::optional<bool> excludes = take_flag(request, kExcludeInput, fields);
  const RequestFields others(fields);
  for (const auto& [field, instead] : kUnsupportedFields) refuse_if_set(others, field, instead);
  if (stream && !request.may_stream)
    throw ApiError({.message = "a stream needs ModelStreamInfer of gRPC or generate_stream",
                    .param = kStream,
                    .code = "invalid_value"});
  fields["prompt"] = read_prompt(request);
  fields["stream"] = stream;
  if (std::ranges::count(text.outputs, kLogProbabilities) > 0) fields["logprobs"] = 0;
  const RequestFields all(std::move(fields));
  text.answer = read_completion_request(all, model);
  refuse_several_answers(text.answer.options);
  const Json& prompt = all.value()["prompt"];
  if (includes_prompt(excludes, stream))
    text.prefix = prompt.is_string() ? prompt.get<std::string>()
                                     : decoded_text(model, text.answer.prompts.front());
  return text;
}

}  // namespace strata
