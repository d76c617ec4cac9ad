#include "strata/data/array_file.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

class ArrayFileTest : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = folder_.path("array");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // A .npy file as NumPy writes it.
  static std::string npy(const std::string& dictionary, const std::string& numbers,
                         int version = 1) {
    std::string header = dictionary;
    while ((10 + header.size() + 1) % 64 != 0) header += ' ';
    header += '\n';
    std::string length(version == 1 ? 2 : 4, '\0');
    for (std::size_t i = 0; i < length.size(); ++i)
      length[i] = static_cast<char>(header.size() >> (8 * i));
    return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' + length + header + numbers;
  }

  template <typename T>
  static std::string bytes_of(const std::vector<T>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
  }

  ErrorText refusal(const std::string& bytes) {
    try {
      ArrayFile::open(write(bytes));
    } catch (const UserError& error) {
      return error.text();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }

  ScratchFolder folder_;
};

const std::string kMatrix = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }";
const std::vector<float> kNumbers = {0, 1, 10, 11, 20, 21, 30, 31};

TEST_F(ArrayFileTest, ReadsSamplesOfNumpyInTheRequestedOrder) {
  for (const int version : {1, 2}) {
    const ArrayFile array = ArrayFile::open(write(npy(kMatrix, bytes_of(kNumbers), version)));
    EXPECT_EQ(array.shape(), (std::vector<std::int64_t>{4, 2}));
    EXPECT_EQ(array.dtype(), at::kFloat);
    EXPECT_EQ(array.sample_numel(), 2);
    const at::Tensor samples = array.samples(std::vector<std::int64_t>{3, 0, 1, 1});
    const at::Tensor flat = samples.view(-1);
    const std::vector<float> read(flat.const_data_ptr<float>(),
                                  flat.const_data_ptr<float>() + flat.numel());
    EXPECT_EQ(read, (std::vector<float>{30, 31, 0, 1, 10, 11, 10, 11}));
  }
}

TEST_F(ArrayFileTest, ReadsEveryTypeOfNumber) {
  const auto number = [&](const std::string& type, const std::string& bytes) {
    const ArrayFile array = ArrayFile::open(
        write(npy("{'descr': '" + type + "', 'fortran_order': False, 'shape': (1,), }", bytes)));
    return array.samples(std::vector<std::int64_t>{0}).item<double>();
  };
  EXPECT_EQ(number("<f8", bytes_of<double>({-2.5})), -2.5);
  EXPECT_EQ(number("<f2", bytes_of<std::uint16_t>({0xC100})), -2.5);
  EXPECT_EQ(number("<i8", bytes_of<std::int64_t>({-7})), -7);
  EXPECT_EQ(number("<i4", bytes_of<std::int32_t>({-7})), -7);
  EXPECT_EQ(number("<i2", bytes_of<std::int16_t>({-7})), -7);
  EXPECT_EQ(number("|i1", "\xF9"), -7);
  EXPECT_EQ(number("|u1", "\xF9"), 249);
  EXPECT_EQ(number("|b1", "\x01"), 1);
}

TEST_F(ArrayFileTest, ReadsImagesOfIdx) {
  const std::string header("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03", 16);
  const ArrayFile array = ArrayFile::open(write(header + "abcdef"));
  EXPECT_EQ(array.shape(), (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(array.dtype(), at::kByte);
  EXPECT_EQ(array.samples(std::vector<std::int64_t>{1})[0][0][2].item<int>(), 'f');
}

TEST_F(ArrayFileTest, RefusesOtherFilesWithTheReason) {
  EXPECT_NE(refusal("PK\x03\x04").what.find("no .npy"), std::string::npos);
  EXPECT_EQ(refusal("\x1f\x8b\x08\x00").fix, "unpack it: gunzip");
  const auto of = [&](const std::string& descr, const std::string& order,
                      const std::string& shape) {
    return refusal(npy("{'descr': " + descr + ", 'fortran_order': " + order +
                           ", 'shape': " + shape + ", }",
                       bytes_of(kNumbers)))
        .what;
  };
  EXPECT_EQ(of("'<f4'", "False", "(5, 2)"), "the file has another size than its header says");
  EXPECT_EQ(of("'<f4'", "True", "(4, 2)"), "numbers by columns");
  EXPECT_EQ(of("'>f4'", "False", "(4, 2)"), "numbers of a type that is not read");
  EXPECT_EQ(of("'|O'", "False", "(8,)"), "numbers of a type that is not read");
  EXPECT_EQ(of("'<f4'", "False", "()"), "the array has no dimension of samples");
  EXPECT_EQ(of("'<f4'", "False", "(4, -2)"), "a shape that cannot be read");
  for (const char* shape : {"(0, 2)", "(0, 4611686018427387904, 4611686018427387904)",
                            "(4611686018427387904, 4)", "(1048576, 1048576, 1048576)"})
    EXPECT_EQ(of("'<f4'", "False", shape), "the array has no elements, or more than can be counted")
        << shape;
  EXPECT_EQ(refusal(std::string("\0\0\x0D\x01\0\0\0\x01\0\0\0\0", 12)).what,
            "IDX numbers of a type that is not read");
}

// Every part of a file, and files with changed bytes, are read or refused.
TEST_F(ArrayFileTest, DamagedFilesAreRefusedOrRead) {
  const std::string whole = npy(kMatrix, bytes_of(kNumbers));
  for (std::size_t size = 1; size < whole.size(); ++size) refusal(whole.substr(0, size));
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = whole;
    for (int change = 0; change < 3; ++change)
      changed[random() % 128] = static_cast<char>(random());
    try {
      const ArrayFile array = ArrayFile::open(write(changed));
      array.samples(std::vector<std::int64_t>{array.count() - 1});
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace strata
