// Bodies that lie about their lengths, shapes and types: each gets status 400 and a clear message,
// and the server reads nothing beyond the body.
#include <gtest/gtest.h>

#include "strata/kserve/kserve_server_test.h"

namespace strata {
namespace {

constexpr const char* kInfer = "/v2/models/m/infer";

struct Binary {
  TestJson json;
  std::string bytes;
  std::string length = "";  // of the JSON, as the header states it; "": the true one

  std::string refusal(const KServeServer& server) const {
    const std::string head = json.dump();
    return server.refusal(
        kInfer, head + bytes, 400,
        {{kJsonLengthHeader, length.empty() ? std::to_string(head.size()) : length}});
  }
};

Binary binary_text(const std::string& bytes, const TestJson& size, TestJson shape = {1}) {
  return {{{"inputs",
            {{{"name", "text_input"},
              {"datatype", "BYTES"},
              {"shape", std::move(shape)},
              {"parameters", {{"binary_data_size", size}}}}}}},
          bytes};
}

TEST(HostileBodies, HaveWrongBinarySizes) {
  const KServeServer server;
  const std::string text = text_element("abc");
  for (const TestJson& size : std::vector<TestJson>{8, INT64_MAX, UINT64_MAX})
    EXPECT_NE(binary_text(text, size).refusal(server).find("the body has 7 bytes left"),
              std::string::npos);
  for (const TestJson& size : std::vector<TestJson>{-1, 1.5, "7", true})
    EXPECT_NE(binary_text(text, size).refusal(server).find("must be a whole number"),
              std::string::npos);
  EXPECT_EQ(binary_text(text + "x", 7).refusal(server),
            "the body has 1 bytes after the last tensor");
  EXPECT_NE(binary_text("", 0).refusal(server).find("has 0 elements"), std::string::npos);
}

TEST(HostileBodies, HaveWrongLengthsOfTexts) {
  const KServeServer server;
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"
                    "abc"),
        std::string("\4\0\0\0abc", 7), std::string("\2\0\0\0abc", 7), std::string("abc")})
    EXPECT_NE(binary_text(bytes, bytes.size()).refusal(server).find("ends beyond"),
              std::string::npos);
}

TEST(HostileBodies, HaveWrongLengthsOfJson) {
  const KServeServer server;
  Binary body = binary_text(text_element("abc"), 7);
  for (const char* length : {"-1", "100000", "18446744073709551616", "1e3", "+5", "0x10", " 5"}) {
    body.length = length;
    EXPECT_NE(body.refusal(server).find("must be a whole number up to"), std::string::npos)
        << length;
  }
  for (const char* length : {"0", "10"}) {
    body.length = length;
    EXPECT_NE(body.refusal(server).find("cannot be used"), std::string::npos) << length;
  }
}

TEST(HostileBodies, HaveImpossibleShapes) {
  const KServeServer server;
  for (const TestJson& shape : std::vector<TestJson>{
           {INT64_MAX, INT64_MAX}, {UINT64_MAX}, {-1}, {1.5}, {"1"}, TestJson(99, 1), "x", 1})
    EXPECT_NE(binary_text(text_element("abc"), 7, shape).refusal(server).find("'text_input'"),
              std::string::npos);
}

TEST(HostileBodies, HaveElementsOutsideTheirDatatype) {
  const KServeServer server;
  const auto refused = [&](const char* datatype, const TestJson& value) {
    TestJson request = text_request("");
    request["inputs"][0] = json_tensor("input_ids", datatype, TestJson::array({value}));
    return server.refusal(kInfer, request.dump());
  };
  const std::vector<std::pair<const char*, std::vector<TestJson>>> bad = {
      {"BOOL", {2, "true", 0.0}},
      {"UINT8", {256, -1, 1.0}},
      {"INT8", {128, -129}},
      {"UINT16", {65536}},
      {"INT16", {32768}},
      {"UINT32", {std::int64_t{1} << 32, -1}},
      {"INT32", {std::int64_t{1} << 31}},
      {"UINT64", {-1}},
      {"INT64", {UINT64_MAX, 1.5}},
      {"FP32", {1e39, "1"}},
      {"FP64", {"1", true}},
      {"BYTES", {1, nullptr, TestJson::object()}}};
  for (const auto& [datatype, values] : bad)
    for (const TestJson& value : values)
      EXPECT_NE(refused(datatype, value).find(std::string("is ") + datatype + "; got"),
                std::string::npos)
          << datatype << value;
  EXPECT_NE(refused("FP16", 1.0).find("must be sent as bytes"), std::string::npos);
}

TEST(HostileBodies, HaveOtherStructures) {
  const KServeServer server;
  for (const char* body :
       {"", "[]", "1", "{", "null", "{}", R"({"inputs":1})", R"({"inputs":[1]})",
        R"({"inputs":[{"name":1}]})", R"({"inputs":[],"outputs":{}})",
        R"({"inputs":[],"parameters":[]})", R"({"id":1,"inputs":[]})",
        R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1]}]})",
        R"({"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":"x"}]})"})
    EXPECT_FALSE(server.refusal(kInfer, body).empty()) << body;
  TestJson many = text_request("a");
  for (int i = 0; i < 1024; ++i) many["inputs"].push_back(many["inputs"][0]);
  EXPECT_NE(server.refusal(kInfer, many.dump()).find("at most 1024 tensors"), std::string::npos);
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_NE(server.refusal(kInfer, R"({"inputs":[{"data":)" + deep + "}]}").find("cannot be used"),
            std::string::npos);
}

TEST(HostileBodies, NameSharedMemoryAndPackedBodies) {
  const KServeServer server;
  TestJson request = text_request("abc");
  request["inputs"][0]["parameters"]["shared_memory_region"] = "r";
  EXPECT_EQ(server.refusal(kInfer, request.dump()),
            "'shared_memory_region' is not supported: send tensors in the request");
  request = text_request("abc");
  request["outputs"] = {{{"name", "text_output"}, {"parameters", {{"classification", 3}}}}};
  EXPECT_NE(server.refusal(kInfer, request.dump()).find("'classification'"), std::string::npos);
  EXPECT_NE(server.refusal(kInfer, "x", 400, {{"Content-Encoding", "gzip"}}).find("send the body"),
            std::string::npos);
}

TEST(HostileBodies, HoldTextsThatAreNotUtf8) {
  const KServeServer server;
  const std::string bytes = text_element("a\xff");
  EXPECT_EQ(binary_text(bytes, bytes.size()).refusal(server), "tensor 'text_input' is not UTF-8");
  EXPECT_EQ(server.service->requests().size(), 0U);
}

}  // namespace
}  // namespace strata
