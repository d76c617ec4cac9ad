/// Converts the elements of tensors from and to JSON values.
///
/// Source  Open Inference Protocol, "Tensor Data": a list, nested or flat, in row-major order.
/// Errors  ApiError 400 that names the tensor.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "strata/kserve/model/tensor.h"

namespace strata {

/// Appends the elements of a list to `tensor.bytes`; null is NaN. Refuses values outside the range
/// of the datatype, and FP16 and BF16.
void append_json(Tensor& tensor, const nlohmann::json& list);

/// The elements of a tensor that passed check_bytes(), as a flat list. Bytes of BYTES that are not
/// UTF-8 become U+FFFD when the list is written.
nlohmann::ordered_json json_elements(const Tensor& tensor);

}  // namespace strata
