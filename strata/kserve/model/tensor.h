/// Holds a named tensor as the bytes that KServe's protocols transfer, and reads and writes its
/// elements.
///
/// The bytes are elements in row-major order, little-endian. An element of BYTES is its length, 4
/// bytes, and then its bytes.
///
/// Errors  ApiError 400 that names the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// The protocol's element types. FP16 and BF16 exist as bytes only.
enum class Datatype : std::uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kBytes,
};
const char* name_of(Datatype datatype);        ///< "INT64"
std::string config_type(Datatype datatype);    ///< in Triton's configurations: "TYPE_STRING"
std::size_t element_bytes(Datatype datatype);  ///< 0: kBytes, whose elements differ in length

using TensorShape = std::vector<std::int64_t>;

struct Tensor {
  std::string name;
  Datatype datatype = Datatype::kBytes;
  TensorShape shape;
  std::string bytes = {};
};

/// Refuses dimensions that are negative, more than 16, or whose product exceeds 2^31 - 1; those of
/// 0 do not count in the product.
std::size_t element_count(const Tensor& tensor);

/// Refuses bytes that are not exactly the elements of the shape.
void check_bytes(const Tensor& tensor);

/// The elements of a BYTES tensor; they share its bytes. Refuses lengths beyond the end.
std::vector<std::string_view> texts_of(const Tensor& tensor);

/// Appends an element of BYTES.
void append_text(std::string& bytes, std::string_view text);

template <typename T>
void append_value(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The elements of a tensor that passed check_bytes(); `T` has the size of its datatype.
template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string shape_text(const TensorShape& shape);  ///< "[2,3]"

/// "tensor 'x' ...".
[[noreturn]] void refuse_tensor(const std::string& name, const std::string& what);

}  // namespace strata
