#include "strata/kserve/rest/tensor_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "strata/openai/request_fields.h"

namespace strata {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse_element(const Tensor& tensor, const Json& value) {
  refuse_tensor(tensor.name,
                "is " + std::string(name_of(tensor.datatype)) + "; got " + short_json(value));
}

template <typename T>
void append_integer(Tensor& tensor, const Json& value) {
  if (!value.is_number_integer()) refuse_element(tensor, value);
  // A number that is not negative is unsigned in the JSON library.
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                               : std::in_range<T>(value.get<std::int64_t>());
  if (!fits) refuse_element(tensor, value);
  append_value(tensor.bytes, value.get<T>());
}

template <typename T>
void append_real(Tensor& tensor, const Json& value) {
  if (!value.is_number()) refuse_element(tensor, value);
  const double number = value.get<double>();
  if (std::abs(number) > static_cast<double>(std::numeric_limits<T>::max()))
    refuse_element(tensor, value);
  append_value(tensor.bytes, static_cast<T>(number));
}

void append_bool(Tensor& tensor, const Json& value) {
  const bool is_bit = value.is_number_unsigned() && value.get<std::uint64_t>() <= 1;
  if (!value.is_boolean() && !is_bit) refuse_element(tensor, value);
  append_value(tensor.bytes, value.is_boolean() ? value.get<bool>() : value == 1);
}

void append_element(Tensor& tensor, const Json& value) {
  using enum Datatype;
  switch (tensor.datatype) {
    case kBool:
      return append_bool(tensor, value);
    case kUint8:
      return append_integer<std::uint8_t>(tensor, value);
    case kUint16:
      return append_integer<std::uint16_t>(tensor, value);
    case kUint32:
      return append_integer<std::uint32_t>(tensor, value);
    case kUint64:
      return append_integer<std::uint64_t>(tensor, value);
    case kInt8:
      return append_integer<std::int8_t>(tensor, value);
    case kInt16:
      return append_integer<std::int16_t>(tensor, value);
    case kInt32:
      return append_integer<std::int32_t>(tensor, value);
    case kInt64:
      return append_integer<std::int64_t>(tensor, value);
    case kFp16:
    case kBf16:
      refuse_tensor(tensor.name, "must be sent as bytes, because it is 16 bits wide");
    case kFp32:
      return append_real<float>(tensor, value);
    case kFp64:
      return append_real<double>(tensor, value);
    case kBytes:
      if (!value.is_string()) refuse_element(tensor, value);
      return append_text(tensor.bytes, value.get_ref<const std::string&>());
  }
}

template <typename T>
nlohmann::ordered_json list_of(const Tensor& tensor) {
  auto list = nlohmann::ordered_json::array();
  for (const T value : values_of<T>(tensor)) list.push_back(value);
  return list;
}

nlohmann::ordered_json texts(const Tensor& tensor) {
  auto list = nlohmann::ordered_json::array();
  for (const std::string_view text : texts_of(tensor)) list.push_back(text);
  return list;
}

nlohmann::ordered_json flags(const Tensor& tensor) {
  auto list = nlohmann::ordered_json::array();
  for (const char byte : tensor.bytes) list.push_back(byte != 0);
  return list;
}

}  // namespace

void append_json(Tensor& tensor, const nlohmann::json& list) {
  if (!list.is_array()) refuse_tensor(tensor.name, "needs a list as 'data'");
  for (const Json& value : list)
    if (value.is_array())
      append_json(tensor, value);
    else
      append_element(tensor, value);
}

nlohmann::ordered_json json_elements(const Tensor& tensor) {
  using enum Datatype;
  switch (tensor.datatype) {
    case kBool:
      return flags(tensor);
    case kUint8:
      return list_of<std::uint8_t>(tensor);
    case kUint16:
      return list_of<std::uint16_t>(tensor);
    case kUint32:
      return list_of<std::uint32_t>(tensor);
    case kUint64:
      return list_of<std::uint64_t>(tensor);
    case kInt8:
      return list_of<std::int8_t>(tensor);
    case kInt16:
      return list_of<std::int16_t>(tensor);
    case kInt32:
      return list_of<std::int32_t>(tensor);
    case kInt64:
      return list_of<std::int64_t>(tensor);
    case kFp32:
      return list_of<float>(tensor);
    case kFp64:
      return list_of<double>(tensor);
    case kFp16:
    case kBf16:
      refuse_tensor(tensor.name, "can only be sent as bytes: request binary_data");
    case kBytes:
      break;
  }
  return texts(tensor);
}

}  // namespace strata
