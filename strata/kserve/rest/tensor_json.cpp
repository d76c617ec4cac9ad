#include "strata/kserve/rest/tensor_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "strata/kserve/model/refusals.h"
#include "strata/kserve/model/visit_numbers.h"
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

// JSON has no NaN; json_text() writes null for it.
template <typename T>
void append_real(Tensor& tensor, const Json& value) {
  if (value.is_null()) return append_value(tensor.bytes, std::numeric_limits<T>::quiet_NaN());
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
  const bool is_number = visit_numbers(tensor.datatype, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      append_bool(tensor, value);
    else if constexpr (std::is_integral_v<T>)
      append_integer<T>(tensor, value);
    else
      append_real<T>(tensor, value);
  });
  if (is_number) return;
  if (tensor.datatype != Datatype::kBytes) refuse_half_precision(tensor);
  if (!value.is_string()) refuse_element(tensor, value);
  append_text(tensor.bytes, value.get_ref<const std::string&>());
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
  auto list = nlohmann::ordered_json::array();
  const bool is_number = visit_numbers(tensor.datatype, [&]<typename T>(T) {
    // A byte that is neither 0 nor 1 is no bool in memory.
    using Element = std::conditional_t<std::is_same_v<T, bool>, char, T>;
    for (const Element value : values_of<Element>(tensor)) list.push_back(static_cast<T>(value));
  });
  if (is_number) return list;
  if (tensor.datatype != Datatype::kBytes)
    refuse_tensor(tensor.name, "can only be sent as bytes: request binary_data");
  for (const std::string_view text : texts_of(tensor)) list.push_back(text);
  return list;
}

}  // namespace strata
