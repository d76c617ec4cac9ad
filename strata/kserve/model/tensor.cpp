#include "strata/kserve/model/tensor.h"

#include <bit>

#include "strata/base/enum_names.h"
#include "strata/base/user_text.h"
#include "strata/kserve/model/visit_numbers.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are copied as they are");

constexpr std::size_t kMaxDimensions = 16;
constexpr std::int64_t kMaxElements = INT32_MAX;
constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

}  // namespace

const char* name_of(Datatype datatype) {
  using enum Datatype;
  static constexpr EnumNames<Datatype> kNames{
      {kBool, "BOOL"},     {kUint8, "UINT8"}, {kUint16, "UINT16"}, {kUint32, "UINT32"},
      {kUint64, "UINT64"}, {kInt8, "INT8"},   {kInt16, "INT16"},   {kInt32, "INT32"},
      {kInt64, "INT64"},   {kFp16, "FP16"},   {kBf16, "BF16"},     {kFp32, "FP32"},
      {kFp64, "FP64"},     {kBytes, "BYTES"}};
  return kNames[datatype];
}

std::string config_type(Datatype datatype) {
  return datatype == Datatype::kBytes ? "TYPE_STRING" : std::string("TYPE_") + name_of(datatype);
}

std::size_t element_bytes(Datatype datatype) {
  std::size_t bytes = datatype == Datatype::kFp16 || datatype == Datatype::kBf16 ? 2 : 0;
  visit_numbers(datatype, [&](auto zero) { bytes = sizeof zero; });
  return bytes;
}

std::string shape_text(const TensorShape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? "," : "") + std::to_string(size);
  return text + ']';
}

void refuse_tensor(const std::string& name, const std::string& what) {
  throw ApiError({.message = "tensor '" + excerpt(name) + "' " + what,
                  .param = excerpt(name),
                  .code = "invalid_value"});
}

std::size_t element_count(const Tensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions)
    refuse_tensor(tensor.name, "has " + std::to_string(tensor.shape.size()) +
                                   " dimensions; at most " + std::to_string(kMaxDimensions));
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) refuse_tensor(tensor.name, "has the dimension " + std::to_string(size));
    if (size > 0 && count > kMaxElements / size)
      refuse_tensor(tensor.name, "has the shape " + shape_text(tensor.shape) + "; at most " +
                                     std::to_string(kMaxElements) + " elements");
    if (size > 0) count *= size;
    empty = empty || size == 0;
  }
  return empty ? 0 : static_cast<std::size_t>(count);
}

void check_bytes(const Tensor& tensor) {
  const std::size_t count = element_count(tensor);
  if (tensor.datatype == Datatype::kBytes) {
    if (const std::size_t texts = texts_of(tensor).size(); texts != count)
      refuse_tensor(tensor.name, "has " + std::to_string(texts) + " elements; its shape " +
                                     shape_text(tensor.shape) + " needs " + std::to_string(count));
    return;
  }
  if (const std::size_t needed = count * element_bytes(tensor.datatype);
      tensor.bytes.size() != needed)
    refuse_tensor(tensor.name, "has " + std::to_string(tensor.bytes.size()) + " bytes; " +
                                   name_of(tensor.datatype) + " of shape " +
                                   shape_text(tensor.shape) + " needs " + std::to_string(needed));
}

std::vector<std::string_view> texts_of(const Tensor& tensor) {
  std::vector<std::string_view> texts;
  std::string_view rest = tensor.bytes;
  while (!rest.empty()) {
    std::uint32_t length = 0;
    if (rest.size() >= kLengthBytes) std::memcpy(&length, rest.data(), kLengthBytes);
    if (rest.size() < kLengthBytes || length > rest.size() - kLengthBytes)
      refuse_tensor(tensor.name, "has an element of BYTES that ends beyond its " +
                                     std::to_string(tensor.bytes.size()) + " bytes");
    texts.push_back(rest.substr(kLengthBytes, length));
    rest.remove_prefix(kLengthBytes + length);
  }
  return texts;
}

void append_text(std::string& bytes, std::string_view text) {
  append_value(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}

}  // namespace strata
