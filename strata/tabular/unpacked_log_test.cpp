#include "strata/tabular/unpacked_log.h"

#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "strata/tabular/log_test.h"

namespace strata {
namespace {

std::string packed(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

class UnpackedLogTest : public LogTest {
 protected:
  void TearDown() override { unsetenv("TMPDIR"); }

  // Longer than one read or write.
  static std::string long_log() {
    std::string text = "label,word\n";
    for (int i = 0; i < 200'000; ++i)
      text += std::to_string(i % 2) + ",w" + std::to_string(i * 7919 % 100'003) + "\n";
    return text;
  }
  std::shared_ptr<const SampleFile> open(const std::string& name, const std::string& bytes) const {
    return open_samples(write(name, bytes), {});
  }
  ErrorText refusal_of(const std::string& name, const std::string& bytes) const {
    return refusal([&] { open(name, bytes); });
  }
};

TEST_F(UnpackedLogTest, ReadsSamplesOfCompressedLogInAnyOrder) {
  const std::string text = long_log();
  const auto plain = open("plain.csv", text), unpacked = open("packed.csv.gz", packed(text));
  ASSERT_EQ(unpacked->samples(), 200'000);
  EXPECT_EQ(unpacked->columns(), plain->columns());
  for (const std::int64_t sample : {199'999, 0, 123'456, 7})
    EXPECT_EQ(fields_of(*unpacked, sample), fields_of(*plain, sample));
  EXPECT_TRUE(unpacked->place(99).ends_with("/packed.csv.gz:101"));
}

TEST_F(UnpackedLogTest, ReadsConcatenatedCompressedParts) {
  const auto file = open("a.csv.gz", packed("label,word\n1,a\n") + packed("0,b\n1,c\n"));
  ASSERT_EQ(file->samples(), 3);
  EXPECT_EQ(fields_of(*file, 2), (Fields{"1", "c"}));
}

TEST_F(UnpackedLogTest, DetectsCompressionByBytesNotName) {
  EXPECT_EQ(open("a.tsv", packed("label\tword\n1\ta\n"))->samples(), 1);
  EXPECT_EQ(open("a.svm.gz", packed("1 3:0.5\n0 4:1\n"))->samples(), 2);
}

TEST_F(UnpackedLogTest, LeavesNothingInTemporaryFolder) {
  const std::string folder = folder_.path("temporary");
  std::filesystem::create_directory(folder);
  setenv("TMPDIR", folder.c_str(), 1);
  const auto file = open("a.csv.gz", packed("label,word\n1,a\n"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(file->samples(), 1);
}

TEST_F(UnpackedLogTest, RejectsDamagedAndTruncatedLogs) {
  const std::string whole = packed(long_log());
  for (const std::size_t bytes : {whole.size() - 1, whole.size() / 2, std::size_t{12}}) {
    const ErrorText cut = refusal_of("a.csv.gz", whole.substr(0, bytes));
    EXPECT_EQ(cut.what, "the packed log ends too soon at byte " + std::to_string(bytes));
    EXPECT_NE(cut.fix.find("gzip -t"), std::string::npos);
  }
  std::string damaged = whole;
  for (std::size_t i = whole.size() / 2; i < whole.size() / 2 + 40; ++i) damaged[i] ^= 0x55;
  EXPECT_TRUE(
      refusal_of("a.csv.gz", damaged).what.starts_with("the packed log is damaged at byte "));
  std::string wrong_sum = packed("label,word\n1,a\n");
  wrong_sum[wrong_sum.size() - 8] ^= 1;
  EXPECT_TRUE(refusal_of("a.csv.gz", wrong_sum).what.starts_with("the packed log is damaged"));
  EXPECT_TRUE(refusal_of("a.csv.gz", packed("label,word\n1,a\n") + "more")
                  .what.starts_with("the packed log is damaged"));
}

TEST_F(UnpackedLogTest, RejectsNamesThatContradictBytes) {
  const ErrorText plain = refusal_of("a.csv.gz", "label,word\n1,a\n");
  EXPECT_TRUE(plain.fix.ends_with("/a.csv")) << plain.fix;
  EXPECT_EQ(refusal_of("a.csv.gz", packed("")).what, "the file is empty");
  EXPECT_TRUE(refusal_of("a.strata.gz", "x").fix.starts_with("unpack them: gunzip "));
  EXPECT_TRUE(refusal_of("a.csv.zst", "x").fix.starts_with("unpack it: zstd -d "));
  EXPECT_EQ(refusal_of("a.gz", "x").what, "the name does not say what the file is");
}

TEST_F(UnpackedLogTest, NamesFolderWithoutSpace) {
  setenv("TMPDIR", folder_.path("missing").c_str(), 1);
  const std::string log = write("a.csv.gz", packed("label,word\n1,a\n"));
  EXPECT_EQ(open_samples(log, {})->samples(), 1) << "a folder that is missing is not used";
  if (!std::filesystem::exists("/dev/full")) return;
  const FileUse use{.operation = "tabular.open", .fix = ""};
  setenv("TMPDIR", "/proc", 1);
  const ErrorText refused = refusal([&] { open_log(log, use); });
  EXPECT_EQ(refused.where, "/proc");
  EXPECT_NE(refused.fix.find("TMPDIR"), std::string::npos);
}

}  // namespace
}  // namespace strata
