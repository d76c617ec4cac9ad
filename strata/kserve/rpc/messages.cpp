#include "strata/kserve/rpc/messages.h"

#include <cmath>
#include <string>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/user_text.h"
#include "strata/kserve/model/refusals.h"
#include "strata/kserve/model/visit_numbers.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using InputMessage = inference::ModelInferRequest::InferInputTensor;

Json value_of(const std::string& name, const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    case inference::InferParameter::kDoubleParam:
      // JSON has no such number, and a null field would count as missing.
      if (!std::isfinite(parameter.double_param()))
        refuse_field(excerpt(name), "a finite number", std::to_string(parameter.double_param()));
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      return parameter.uint64_param();
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  refuse_field(excerpt(name), "a value", "none");
}

template <typename T, typename List>
void append_list(Tensor& tensor, const List& list) {
  for (const auto value : list) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (!std::in_range<T>(value))
        refuse_tensor(tensor.name, std::string("is ") + name_of(tensor.datatype) + "; got " +
                                       std::to_string(value));
    append_value(tensor.bytes, static_cast<T>(value));
  }
}

// The list of the message that has elements of the type.
template <typename T>
const auto& list_of(const inference::InferTensorContents& contents) {
  if constexpr (std::is_same_v<T, bool>)
    return contents.bool_contents();
  else if constexpr (std::is_same_v<T, float>)
    return contents.fp32_contents();
  else if constexpr (std::is_same_v<T, double>)
    return contents.fp64_contents();
  else if constexpr (sizeof(T) == 8 && std::is_signed_v<T>)
    return contents.int64_contents();
  else if constexpr (sizeof(T) == 8)
    return contents.uint64_contents();
  else if constexpr (std::is_signed_v<T>)
    return contents.int_contents();
  else
    return contents.uint_contents();
}

void append_contents(Tensor& tensor, const inference::InferTensorContents& contents) {
  const bool is_number = visit_numbers(
      tensor.datatype, [&]<typename T>(T) { append_list<T>(tensor, list_of<T>(contents)); });
  if (is_number) return;
  if (tensor.datatype != Datatype::kBytes) refuse_half_precision(tensor);
  for (const std::string& text : contents.bytes_contents()) append_text(tensor.bytes, text);
}

// `raw`: null if the message has the elements in a typed list.
Tensor read_tensor_message(const InputMessage& message, const std::string* raw) {
  const auto datatype = value_named<Datatype>(message.datatype());
  if (!datatype)
    refuse_tensor(message.name(), "has the datatype '" + excerpt(message.datatype()) +
                                      "', not one of " + list_names<Datatype>());
  refuse_parameters(message.parameters());
  Tensor tensor{.name = message.name(),
                .datatype = *datatype,
                .shape = {message.shape().begin(), message.shape().end()}};
  if (raw == nullptr)
    append_contents(tensor, message.contents());
  else if (message.has_contents())
    refuse_tensor(tensor.name, "has both contents and raw_input_contents");
  else
    tensor.bytes = *raw;
  check_bytes(tensor);
  return tensor;
}

void set_time(const RequestTime& time, inference::StatisticDuration& message) {
  message.set_count(time.count);
  message.set_ns(time.nanoseconds);
}

template <typename Message>
void set_config_tensor(const TensorMetadata& spec, Message& message) {
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse(config_type(spec.datatype), &type);
  message.set_name(spec.name);
  message.set_data_type(type);
  for (const std::int64_t size : spec.shape) message.add_dims(size);
}

}  // namespace

InferenceRequest read_infer_message(const inference::ModelInferRequest& message) {
  const int raw = message.raw_input_contents_size();
  if (raw != 0 && raw != message.inputs_size())
    throw ApiError({.message = "raw_input_contents has " + std::to_string(raw) + " tensors; " +
                               std::to_string(message.inputs_size()) + " inputs need as many",
                    .param = "raw_input_contents",
                    .code = "invalid_value"});
  InferenceRequest request{
      .model = message.model_name(), .version = message.model_version(), .id = message.id()};
  refuse_parameters(message.parameters());
  for (const auto& [name, parameter] : message.parameters())
    request.parameters[name] = value_of(name, parameter);
  for (int i = 0; i < message.inputs_size(); ++i)
    request.inputs.push_back(read_tensor_message(
        message.inputs(i), raw == 0 ? nullptr : &message.raw_input_contents(i)));
  for (const auto& output : message.outputs()) {
    refuse_parameters(output.parameters());
    request.outputs.push_back(output.name());
  }
  return request;
}

void write_answer(const InferenceHead& head, InferenceAnswer answer,
                  inference::ModelInferResponse& message) {
  message.set_model_name(head.model);
  message.set_model_version(kModelVersion);
  message.set_id(head.id);
  if (head.streamed)
    (*message.mutable_parameters())["triton_final_response"].set_bool_param(answer.last);
  for (Tensor& tensor : answer.outputs) {
    auto& output = *message.add_outputs();
    output.set_name(tensor.name);
    output.set_datatype(name_of(tensor.datatype));
    for (const std::int64_t size : tensor.shape) output.add_shape(size);
    message.add_raw_output_contents(std::move(tensor.bytes));
  }
}

void write_metadata(const ModelDescription& model, inference::ModelMetadataResponse& message) {
  const auto set = [](const TensorMetadata& spec, auto& tensor) {
    tensor.set_name(spec.name);
    tensor.set_datatype(name_of(spec.datatype));
    for (const std::int64_t size : spec.shape) tensor.add_shape(size);
  };
  message.set_name(model.name);
  message.add_versions(kModelVersion);
  message.set_platform(model.platform);
  for (const TensorMetadata& spec : model.inputs) set(spec, *message.add_inputs());
  for (const TensorMetadata& spec : model.outputs) set(spec, *message.add_outputs());
}

void write_config(const ModelDescription& model, inference::ModelConfig& message) {
  message.set_name(model.name);
  message.set_platform(model.platform);
  message.set_backend("strata");
  for (const TensorMetadata& spec : model.inputs) {
    auto& input = *message.add_input();
    set_config_tensor(spec, input);
    input.set_optional(spec.optional);
  }
  for (const TensorMetadata& spec : model.outputs) set_config_tensor(spec, *message.add_output());
  message.mutable_model_transaction_policy()->set_decoupled(model.decoupled);
}

void write_statistics(const std::vector<ModelRepository::Model>& models,
                      inference::ModelStatisticsResponse& message) {
  for (const ModelRepository::Model& model : models) {
    const ModelStatistics statistics = model->statistics();
    auto& each = *message.add_model_stats();
    each.set_name(model->description().name);
    each.set_version(kModelVersion);
    each.set_last_inference(statistics.last_request);
    each.set_inference_count(statistics.success.count);
    each.set_execution_count(statistics.executions);
    auto& times = *each.mutable_inference_stats();
    set_time(statistics.success, *times.mutable_success());
    set_time(statistics.failed(), *times.mutable_fail());
    for (auto* unmeasured :
         {times.mutable_queue(), times.mutable_compute_input(), times.mutable_compute_infer(),
          times.mutable_compute_output(), times.mutable_cache_hit(), times.mutable_cache_miss()})
      set_time({}, *unmeasured);
  }
}

void write_index(const std::vector<IndexEntry>& index,
                 inference::RepositoryIndexResponse& message) {
  for (const IndexEntry& entry : index) {
    auto& model = *message.add_models();
    model.set_name(entry.name);
    model.set_version(kModelVersion);
    model.set_state(entry.state);
    model.set_reason(entry.reason);
  }
}

grpc::Status status_of(const ApiError& error) {
  static const std::map<int, grpc::StatusCode> kCodes = {
      {400, grpc::StatusCode::INVALID_ARGUMENT},   {401, grpc::StatusCode::UNAUTHENTICATED},
      {403, grpc::StatusCode::PERMISSION_DENIED},  {404, grpc::StatusCode::NOT_FOUND},
      {429, grpc::StatusCode::RESOURCE_EXHAUSTED}, {501, grpc::StatusCode::UNIMPLEMENTED},
      {503, grpc::StatusCode::UNAVAILABLE}};
  const auto found = kCodes.find(error.parts().status);
  return {found == kCodes.end() ? grpc::StatusCode::INTERNAL : found->second,
          error.parts().message};
}

}  // namespace strata
