#include "strata/kserve/rest/infer_body.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/json_text.h"
#include "strata/kserve/model/model_repository.h"
#include "strata/kserve/model/refusals.h"
#include "strata/kserve/rest/tensor_json.h"
#include "strata/openai/api_call.h"
#include "strata/openai/api_error.h"
#include "strata/openai/request_fields.h"

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxTensors = 1024;  // a tensor for each column of a log

[[noreturn]] void refuse_body(const std::string& what) {
  throw ApiError({.message = what, .code = "invalid_value"});
}

// What follows the JSON of a body.
class BinaryPart {
 public:
  explicit BinaryPart(std::string_view bytes) : rest_(bytes) {}
  std::string take(const std::string& tensor, std::uint64_t size) {
    if (size > rest_.size())
      refuse_tensor(tensor, "has a binary_data_size of " + std::to_string(size) +
                                "; the body has " + std::to_string(rest_.size()) + " bytes left");
    std::string bytes(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return bytes;
  }
  void check_end() const {
    if (!rest_.empty())
      refuse_body("the body has " + std::to_string(rest_.size()) + " bytes after the last tensor");
  }

 private:
  std::string_view rest_;
};

std::size_t read_json_length(std::string_view text, std::size_t body) {
  if (text.empty()) return body;
  std::uint64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error != std::errc{} || end != text.data() + text.size() || length > body)
    refuse_body(std::string(kJsonLengthHeader) + " must be a whole number up to the " +
                std::to_string(body) + " bytes of the body");
  return length;
}

const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string text_member(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_string()) refuse_field(name, "a text", short_json(value));
  return value.get<std::string>();
}

Json parameters_of(const Json& object) {
  const Json& value = member(object, "parameters");
  if (value.is_null()) return Json::object();
  if (!value.is_object()) refuse_field("parameters", "an object", short_json(value));
  refuse_parameters(value);
  return value;
}

const Json& list_member(const Json& object, const char* name) {
  const Json& list = member(object, name);
  if (!list.is_array() || list.size() > kMaxTensors)
    refuse_field(name, "a list of at most " + std::to_string(kMaxTensors) + " tensors",
                 short_json(list));
  for (const Json& each : list)
    if (!each.is_object()) refuse_field(name, "a list of objects", short_json(each));
  return list;
}

TensorShape shape_of(const Json& object, const std::string& tensor) {
  const Json& list = member(object, "shape");
  if (!list.is_array()) refuse_tensor(tensor, "needs a list as 'shape'");
  TensorShape shape;
  for (const Json& size : list) {
    const bool fits = size.is_number_integer() &&
                      !(size.is_number_unsigned() && size.get<std::uint64_t>() > INT64_MAX);
    if (!fits) refuse_tensor(tensor, "has the dimension " + short_json(size));
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

bool flag_of(const Json& parameters, const char* name, bool otherwise) {
  const Json& value = member(parameters, name);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse_field(name, "true or false", short_json(value));
  return value.get<bool>();
}

Tensor read_tensor(const Json& object, BinaryPart& binary) {
  Tensor tensor{.name = text_member(object, "name"), .shape = {}};
  const std::string datatype = text_member(object, "datatype");
  const auto known = value_named<Datatype>(datatype);
  if (!known)
    refuse_tensor(tensor.name, "has the datatype " + short_json(datatype) + ", not one of " +
                                   list_names<Datatype>());
  tensor.datatype = *known;
  tensor.shape = shape_of(object, tensor.name);
  element_count(tensor);
  const Json parameters = parameters_of(object);
  const Json& size = member(parameters, "binary_data_size");
  const Json& data = member(object, "data");
  if (size.is_null() == data.is_null())
    refuse_tensor(tensor.name, "needs either 'data' or the parameter binary_data_size");
  if (data.is_null()) {
    if (!size.is_number_unsigned())
      refuse_field("binary_data_size", "a whole number", short_json(size));
    tensor.bytes = binary.take(tensor.name, size.get<std::uint64_t>());
  } else {
    append_json(tensor, data);
  }
  check_bytes(tensor);
  return tensor;
}

void read_outputs(const Json& header, InferBody& body) {
  if (member(header, "outputs").is_null()) return;
  for (const Json& object : list_member(header, "outputs")) {
    const std::string name = text_member(object, "name");
    const Json parameters = parameters_of(object);
    body.form.binary[name] = flag_of(parameters, "binary_data", body.form.binary_by_default);
    body.request.outputs.push_back(name);
  }
}

}  // namespace

bool OutputForm::is_binary(const std::string& output) const {
  const auto found = binary.find(output);
  return found == binary.end() ? binary_by_default : found->second;
}

InferBody read_infer_body(const std::string& body, std::string_view json_length) {
  const std::size_t length = read_json_length(json_length, body.size());
  const RequestFields fields(body.substr(0, length));
  const Json& header = fields.value();
  InferBody read;
  read.request.id = fields.text("id", "");
  read.request.parameters = parameters_of(header);
  read.form.binary_by_default = flag_of(read.request.parameters, "binary_data_output", false);
  read.request.parameters.erase("binary_data_output");
  BinaryPart binary(std::string_view(body).substr(length));
  for (const Json& object : list_member(header, "inputs"))
    read.request.inputs.push_back(read_tensor(object, binary));
  binary.check_end();
  read_outputs(header, read);
  return read;
}

HttpAnswer infer_answer(const InferenceHead& head, const OutputForm& form,
                        const InferenceAnswer& answer) {
  nlohmann::ordered_json json = {{"model_name", head.model}, {"model_version", kModelVersion}};
  if (!head.id.empty()) json["id"] = head.id;
  auto outputs = nlohmann::ordered_json::array();
  std::string binary;
  bool has_binary = false;
  for (const Tensor& tensor : answer.outputs) {
    nlohmann::ordered_json output = {
        {"name", tensor.name}, {"datatype", name_of(tensor.datatype)}, {"shape", tensor.shape}};
    if (form.is_binary(tensor.name)) {
      output["parameters"]["binary_data_size"] = tensor.bytes.size();
      binary += tensor.bytes;
      has_binary = true;
    } else {
      output["data"] = json_elements(tensor);
    }
    outputs.push_back(std::move(output));
  }
  json["outputs"] = std::move(outputs);
  HttpAnswer http{.status = 200, .body = json_text(json), .type = kJsonType};
  if (!has_binary) return http;
  http.headers.emplace_back(kJsonLengthHeader, std::to_string(http.body.size()));
  http.type = "application/octet-stream";
  http.body += binary;
  return http;
}

}  // namespace strata
