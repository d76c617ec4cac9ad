#include "strata/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class SafetensorsTest : public ::testing::Test {
 protected:
  // Writes a file with this header, its length (the right one unless given), and this many payload
  // bytes.
  void write_raw(const std::string& header, std::size_t payload, std::int64_t length = -1) {
    const std::uint64_t written = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&written), sizeof(written));
    file << header << std::string(payload, '\1');
  }

  // The error's text, which must contain the path and a fix.
  std::string refusal() {
    try {
      SafetensorsFile::open(path_);
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, path_);
      EXPECT_FALSE(error.text().fix.empty());
      return error.text().what;
    }
    return "nothing refused";
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("a.safetensors");
};

TEST_F(SafetensorsTest, ReadsBackEveryDtypeAndShape) {
  at::manual_seed(1);
  std::vector<NamedTensor> written;
  for (const at::ScalarType dtype : {at::kByte, at::kBFloat16, at::kFloat, at::kHalf, at::kLong,
                                     at::kDouble, at::kInt, at::kShort, at::kChar, at::kBool}) {
    const std::string name = c10::toString(dtype);
    written.push_back({name + ".matrix", at::randint(0, 2, {3, 5}).to(dtype)});
    written.push_back({name + ".scalar", at::ones({}, dtype)});
    written.push_back({name + ".empty", at::empty({0, 4}, dtype)});
  }
  write_safetensors(path_, written);
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.names().size(), written.size());
  for (const auto& [name, tensor] : written) {
    const at::Tensor read = file.tensor(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(read.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(read, tensor)) << name;
    if (read.numel() > 0) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.const_data_ptr()) % read.element_size(), 0u);
    }
  }
}

TEST_F(SafetensorsTest, WritesBytesOfFormat) {
  write_safetensors(path_, std::vector<NamedTensor>{{"x", at::tensor({1.0f, -2.0f})}});
  const std::string text = read_text(path_);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(text.size(), 8 + length + 8);
  const auto header = nlohmann::json::parse(text.substr(8, length));
  EXPECT_EQ(header["x"]["dtype"], "F32");
  EXPECT_EQ(header["x"]["shape"], std::vector<int>{2});
  EXPECT_EQ(header["x"]["data_offsets"], (std::vector<int>{0, 8}));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(text.substr(8 + length), std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
}

TEST_F(SafetensorsTest, ReportsSizeAndChecksumsOfChunks) {
  const ChunkDigest digest = write_safetensors(
      path_, std::vector<NamedTensor>{{"x", at::arange(kChunkBytes / 4)}, {"y", at::ones({3})}});
  const std::string text = read_text(path_);
  EXPECT_EQ(digest.bytes, static_cast<std::int64_t>(text.size()));
  const auto bytes = std::as_bytes(std::span(text));
  ASSERT_EQ(digest.checksums.size(), 3u);
  for (std::size_t chunk = 0; chunk < 3; ++chunk) {
    const std::size_t begin = chunk * kChunkBytes;
    const auto part =
        bytes.subspan(begin, std::min<std::size_t>(kChunkBytes, bytes.size() - begin));
    EXPECT_EQ(digest.checksums[chunk], checksum(part)) << chunk;
  }
}

TEST_F(SafetensorsTest, VerifiesOnlyChunksThatAreRead) {
  constexpr std::int64_t kNumel = 4 * kChunkBytes / 4;
  const ChunkDigest digest =
      write_safetensors(path_, std::vector<NamedTensor>{{"x", at::arange(kNumel, at::kFloat)}});
  std::fstream stream(path_, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(2 * kChunkBytes + 5);
  stream.put('!');
  stream.close();
  const SafetensorsFile file = SafetensorsFile::open(path_, &digest);
  float last = 0;
  file.read("x", kNumel - 1, std::as_writable_bytes(std::span(&last, 1)));
  EXPECT_EQ(last, static_cast<float>(kNumel - 1));
  std::vector<float> many(static_cast<std::size_t>(kNumel));
  const auto bytes = std::as_writable_bytes(std::span(many));
  file.read("x", 0, bytes.first(400));
  EXPECT_EQ(many[99], 99.0f);
  for (const auto& read : std::vector<std::function<void()>>{
           [&] { file.read("x", 2 * kChunkBytes / 4, bytes.first(8)); },
           [&] { file.read("x", kChunkBytes / 4, bytes.first(3 * kChunkBytes - 8)); },
           [&] { file.tensor("x"); }}) {
    try {
      read();
      FAIL() << "read damaged bytes";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, path_);
      EXPECT_EQ(error.text().what, "a file of the checkpoint is damaged: its checksum is another");
    }
  }
}

TEST_F(SafetensorsTest, RejectsFileTruncatedWhileRead) {
  write_safetensors(path_, std::vector<NamedTensor>{{"x", at::arange(100'000)}});
  const SafetensorsFile file = SafetensorsFile::open(path_);
  std::filesystem::resize_file(path_, 5000);
  EXPECT_THROW(file.tensor("x"), UserError);
}

TEST_F(SafetensorsTest, CopiesUnalignedTensors) {
  write_raw(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("x":{"dtype":"I16","shape":[2],"data_offsets":[1,5]}})",
            5);
  EXPECT_TRUE(
      at::equal(SafetensorsFile::open(path_).tensor("x"), at::full({2}, 0x0101, at::kShort)));
}

TEST_F(SafetensorsTest, RejectsMalformedHeader) {
  std::ofstream(path_, std::ios::binary) << "short";
  EXPECT_EQ(refusal(), "the file is truncated");
  write_raw("{}", 0, 1 << 20);
  EXPECT_EQ(refusal(), "the header reaches beyond the file");
  write_raw("{}", 0, std::int64_t{0x7fffffffffffffff});
  EXPECT_EQ(refusal(), "the header reaches beyond the file");
  write_raw("{\"x\":", 0);
  EXPECT_EQ(refusal(), "this is no JSON document");
  write_raw("[1,2]", 0);
  EXPECT_EQ(refusal(), "this is no JSON object");
  write_raw("", 8);
  EXPECT_EQ(refusal(), "this is no JSON document");
  write_raw(std::string(100'000, '['), 0);
  EXPECT_EQ(refusal(), "the JSON is nested too deeply");
}

TEST_F(SafetensorsTest, RejectsMalformedEntries) {
  std::string long_shape = "1";
  for (int i = 0; i < 100; ++i) long_shape += ",1";
  for (const std::string& entry :
       {std::string("1"), std::string("{}"), std::string(R"({"dtype":"F32"})"),
        std::string(R"({"dtype":"F32","shape":[1]})"),
        std::string(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"),
        std::string(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"),
        std::string(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,4]})"),
        std::string(R"({"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]})"),
        R"({"dtype":"F32","shape":[)" + long_shape + R"(],"data_offsets":[0,4]})"}) {
    write_raw(std::string(R"({"x":)") + entry + "}", 4);
    const std::string refused = refusal();
    EXPECT_TRUE(refused.starts_with("x.") && refused.ends_with(" cannot be used")) << refused;
  }
}

TEST_F(SafetensorsTest, NamesUnknownDtype) {
  write_raw(R"({"x":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(refusal(), "x.dtype cannot be used");
}

TEST_F(SafetensorsTest, RejectsBytesThatContradictShapeOrFile) {
  for (const char* rest : {R"("shape":[3],"data_offsets":[0,8])",   // too few bytes
                           R"("shape":[2],"data_offsets":[8,0])",   // backwards
                           R"("shape":[2],"data_offsets":[4,12])",  // beyond the end
                           R"("shape":[9223372036854775807,2,2],"data_offsets":[0,8])"}) {
    write_raw(std::string(R"({"x":{"dtype":"F32",)") + rest + "}}", 8);
    EXPECT_EQ(refusal(), "x lies outside the file or contradicts its shape") << rest;
  }
}

TEST_F(SafetensorsTest, RejectsOverlapsGapsAndExtraBytes) {
  const auto header = [](int begin) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],)"
           R"("data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(begin + 4) + "]}}";
  };
  write_raw(header(4), 8);
  EXPECT_EQ(refusal(), "nothing refused");
  for (const auto& [begin, payload] : {std::pair{2, 6}, {0, 4}, {5, 9}, {4, 9}}) {
    write_raw(header(begin), payload);
    EXPECT_NE(refusal().find("the tensors' ranges"), std::string::npos) << begin;
  }
}

TEST_F(SafetensorsTest, RejectsFileTruncatedAtAnyLength) {
  write_safetensors(path_, std::vector<NamedTensor>{{"x", at::ones({4})}});
  const std::string whole = read_text(path_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    std::filesystem::resize_file(path_, length);
    EXPECT_NE(refusal(), "nothing refused") << length;
    std::ofstream(path_, std::ios::binary) << whole;
  }
}

TEST_F(SafetensorsTest, NamesMissingTensor) {
  write_safetensors(path_, std::vector<NamedTensor>{{"x", at::ones({4})}});
  try {
    SafetensorsFile::open(path_).tensor("y");
    FAIL() << "read a tensor that isn't there";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().got, "y");
  }
}

TEST_F(SafetensorsTest, RejectsWritingNameTwice) {
  EXPECT_THROW(write_safetensors(
                   path_, std::vector<NamedTensor>{{"x", at::ones({4})}, {"x", at::ones({4})}}),
               InternalError);
}

}  // namespace
}  // namespace strata
