/// The types of numbers in safetensors files.
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <string>

namespace strata {

/// By their names in files: "F32", "BF16".
inline const std::map<std::string, at::ScalarType>& safetensors_types() {
  static const std::map<std::string, at::ScalarType> names = {
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
      {"I64", at::kLong},  {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},
      {"U8", at::kByte},   {"BOOL", at::kBool}};
  return names;
}

}  // namespace strata
