#include "strata/kserve/rest/generate_body.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/kserve/model/model_repository.h"
#include "strata/kserve/rest/tensor_json.h"
#include "strata/openai/request_fields.h"

namespace strata {
namespace {

Tensor tensor_of(const TensorMetadata& spec, const nlohmann::json& value) {
  const bool is_list = value.is_array();
  Tensor tensor{.name = spec.name,
                .datatype = spec.datatype,
                .shape = {is_list ? static_cast<std::int64_t>(value.size()) : 1}};
  append_json(tensor, is_list ? value : nlohmann::json::array({value}));
  check_bytes(tensor);
  return tensor;
}

}  // namespace

InferenceRequest read_generate_body(const std::string& body, const ModelDescription& model) {
  const RequestFields fields(body);
  InferenceRequest request{.model = model.name};
  request.id = fields.text("id", "");
  if (fields.find("parameters") != nullptr) request.parameters = fields.inner("parameters").value();
  for (const auto& [name, value] : fields.value().items()) {
    if (name == "id" || name == "parameters" || value.is_null()) continue;
    const auto input = std::ranges::find(model.inputs, name, &TensorMetadata::name);
    if (input == model.inputs.end())
      request.parameters[name] = value;
    else
      request.inputs.push_back(tensor_of(*input, value));
  }
  return request;
}

std::string generate_answer(const InferenceHead& head, const InferenceAnswer& answer) {
  nlohmann::ordered_json json = {{"model_name", head.model}, {"model_version", kModelVersion}};
  if (!head.id.empty()) json["id"] = head.id;
  for (const Tensor& tensor : answer.outputs) {
    nlohmann::ordered_json elements = json_elements(tensor);
    json[tensor.name] = elements.size() == 1 ? elements.front() : std::move(elements);
  }
  return json_text(json);
}

}  // namespace strata
