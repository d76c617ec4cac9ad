#include "strata/kserve/rpc/messages.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "strata/openai/api_error.h"

namespace strata {
namespace {

template <typename T>
std::string bytes_of(T value) {
  std::string bytes;
  append_value(bytes, value);
  return bytes;
}

// A message with an element in each list, of which the datatype selects one.
inference::ModelInferRequest typed_message(const std::string& datatype) {
  inference::ModelInferRequest message;
  auto& input = *message.add_inputs();
  input.set_name("t");
  input.set_datatype(datatype);
  input.add_shape(1);
  auto& contents = *input.mutable_contents();
  contents.add_bool_contents(true);
  contents.add_int_contents(-2);
  contents.add_int64_contents(-3);
  contents.add_uint_contents(4);
  contents.add_uint64_contents(5);
  contents.add_fp32_contents(6.5F);
  contents.add_fp64_contents(7.5);
  contents.add_bytes_contents("8");
  return message;
}

std::string refused(const inference::ModelInferRequest& message) {
  try {
    read_infer_message(message);
  } catch (const ApiError& error) {
    return error.what();
  }
  return "";
}

TEST(Messages, ReadTypedContentsOfEveryDatatype) {
  const std::map<std::string, std::string> expected = {{"BOOL", bytes_of(true)},
                                                       {"UINT8", bytes_of(std::uint8_t{4})},
                                                       {"UINT16", bytes_of(std::uint16_t{4})},
                                                       {"UINT32", bytes_of(std::uint32_t{4})},
                                                       {"UINT64", bytes_of(std::uint64_t{5})},
                                                       {"INT8", bytes_of(std::int8_t{-2})},
                                                       {"INT16", bytes_of(std::int16_t{-2})},
                                                       {"INT32", bytes_of(std::int32_t{-2})},
                                                       {"INT64", bytes_of(std::int64_t{-3})},
                                                       {"FP32", bytes_of(6.5F)},
                                                       {"FP64", bytes_of(7.5)},
                                                       {"BYTES", std::string("\1\0\0\0008", 5)}};
  for (const auto& [datatype, bytes] : expected)
    EXPECT_EQ(read_infer_message(typed_message(datatype)).inputs.at(0).bytes, bytes) << datatype;
  for (const char* half : {"FP16", "BF16"})
    EXPECT_EQ(refused(typed_message(half)),
              "tensor 't' must be sent as bytes, because it is 16 bits wide");
}

TEST(Messages, RefuseNumbersOutsideTheRangeOfTheDatatype) {
  auto message = typed_message("INT8");
  message.mutable_inputs(0)->mutable_contents()->set_int_contents(0, 128);
  EXPECT_EQ(refused(message), "tensor 't' is INT8; got 128");
}

}  // namespace
}  // namespace strata
