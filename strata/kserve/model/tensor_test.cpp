#include "strata/kserve/model/tensor.h"

#include <gtest/gtest.h>

#include "strata/base/enum_names.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

std::string refused(const Tensor& tensor) {
  try {
    check_bytes(tensor);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.parts().status, 400);
    EXPECT_EQ(error.parts().param, tensor.name);
    return error.what();
  }
  ADD_FAILURE() << "accepted " << shape_text(tensor.shape);
  return "";
}

Tensor texts(TensorShape shape, std::string bytes) {
  return {"t", Datatype::kBytes, std::move(shape), std::move(bytes)};
}

std::string text_bytes(const std::string& text) {
  std::string bytes;
  append_text(bytes, text);
  return bytes;
}

TEST(Tensor, NamesEveryDatatypeAsTheProtocolDoes) {
  EXPECT_EQ(list_names<Datatype>(),
            "BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, "
            "FP64, BYTES");
  std::size_t sum = 0;
  for (const auto& [name, datatype] : all_named<Datatype>()) {
    const std::size_t bytes = element_bytes(datatype);
    sum += bytes;
    if (datatype != Datatype::kBytes && datatype != Datatype::kBool) {
      EXPECT_TRUE(name.ends_with(std::to_string(8 * bytes))) << name;
    }
  }
  EXPECT_EQ(sum, 1U + 2 * 15 + 4 + 12);
}

TEST(Tensor, CountsElements) {
  EXPECT_EQ(element_count({"t", Datatype::kFp32, {2, 3, 4}}), 24U);
  EXPECT_EQ(element_count({"t", Datatype::kFp32, {}}), 1U);
  EXPECT_EQ(element_count({"t", Datatype::kFp32, {5, 0}}), 0U);
  EXPECT_EQ(element_count({"t", Datatype::kFp32, {INT32_MAX, 0}}), 0U);
}

TEST(Tensor, RefusesShapesThatOverflow) {
  const std::int64_t root = std::int64_t{1} << 32;
  for (const TensorShape& shape : std::vector<TensorShape>{
           {root, root}, {INT64_MAX}, {INT64_MAX, INT64_MAX, 2}, {2, INT32_MAX}, {root, root, 0}})
    EXPECT_NE(refused({"t", Datatype::kFp64, shape}).find("at most 2147483647 elements"),
              std::string::npos);
  EXPECT_EQ(refused({"t", Datatype::kFp64, {3, -1}}), "tensor 't' has the dimension -1");
  EXPECT_EQ(refused({"t", Datatype::kFp64, TensorShape(17, 1)}),
            "tensor 't' has 17 dimensions; at most 16");
}

TEST(Tensor, RefusesBytesThatAreNotItsElements) {
  check_bytes({"t", Datatype::kInt64, {2}, std::string(16, 'x')});
  for (const std::size_t size : {0, 15, 17})
    EXPECT_EQ(refused({"t", Datatype::kInt64, {2}, std::string(size, 'x')}),
              "tensor 't' has " + std::to_string(size) + " bytes; INT64 of shape [2] needs 16");
}

TEST(Tensor, ReadsTexts) {
  const Tensor tensor = texts({3}, text_bytes("one") + text_bytes("") + text_bytes("th\0ree"));
  check_bytes(tensor);
  EXPECT_EQ(texts_of(tensor), (std::vector<std::string_view>{"one", "", "th"}));
}

TEST(Tensor, RefusesTextsWithBadLengths) {
  EXPECT_NE(refused(texts({1}, std::string("\xff\xff\xff\xff", 4) + "abc")).find("ends beyond"),
            std::string::npos);
  EXPECT_NE(refused(texts({1}, std::string("\4\0\0\0abc", 7))).find("ends beyond"),
            std::string::npos);
  EXPECT_NE(refused(texts({1}, "ab")).find("ends beyond"), std::string::npos);
  EXPECT_NE(refused(texts({1}, text_bytes("a") + "xyz")).find("ends beyond"), std::string::npos);
  EXPECT_EQ(refused(texts({3}, text_bytes("a") + text_bytes("b"))),
            "tensor 't' has 2 elements; its shape [3] needs 3");
  EXPECT_EQ(refused(texts({0}, text_bytes("a"))),
            "tensor 't' has 1 elements; its shape [0] needs 0");
}

}  // namespace
}  // namespace strata
