#include "strata/data/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::int64_t> tokens_of(const TokenFile& file) {
  std::vector<std::int64_t> tokens(file.size());
  file.read(0, tokens);
  return tokens;
}

ErrorText refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    EXPECT_FALSE(error.text().fix.empty()) << error.what();
    return error.text();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(TokenFile, ReadsTextAsBytes) {
  const ScratchFolder folder;
  write_text(folder.path("a.txt"), "Ab\xFF");
  const TokenFile file = TokenFile::open(folder.path("a.txt"));
  EXPECT_TRUE(file.is_text());
  EXPECT_EQ(file.vocabulary(), 256);
  EXPECT_EQ(tokens_of(file), (std::vector<std::int64_t>{'A', 'b', 255}));
}

TEST(TokenFile, ReadsBackEveryWidth) {
  const ScratchFolder folder;
  const std::string path = folder.path("a.tokens");
  for (const std::int64_t vocabulary : {7, 256, 257, 65536, 65537, 1 << 24}) {
    const std::vector<std::int64_t> tokens{0, 3, vocabulary - 1, 5, vocabulary - 1};
    write_token_file(path, tokens, vocabulary);
    const TokenFile file = TokenFile::open(path);
    EXPECT_EQ(file.vocabulary(), vocabulary);
    EXPECT_EQ(tokens_of(file), tokens);
    const std::size_t width = vocabulary <= 256 ? 1 : vocabulary <= 65536 ? 2 : 4;
    EXPECT_EQ(read_text(path).size(), 64 + 5 * width);
  }
}

TEST(TokenFile, WritesTextAsByteTokens) {
  const ScratchFolder folder;
  write_byte_token_file(folder.path("a.tokens"), "Ab\xFF");
  const TokenFile file = TokenFile::open(folder.path("a.tokens"));
  EXPECT_FALSE(file.is_text());
  EXPECT_EQ(file.vocabulary(), 256);
  EXPECT_EQ(tokens_of(file), (std::vector<std::int64_t>{'A', 'b', 255}));
}

TEST(TokenFile, IsDetectedByMagicNotName) {
  const ScratchFolder folder;
  write_token_file(folder.path("corpus.bin"), std::vector<std::int64_t>{1, 2, 300}, 50257);
  EXPECT_EQ(TokenFile::open(folder.path("corpus.bin")).size(), 3);
}

TEST(TokenFile, LeavesNoOtherFileInFolder) {
  const ScratchFolder folder;
  write_byte_token_file(folder.path("a.tokens"), "text");
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.tokens.partial")));
}

TEST(TokenFile, ReadsAnyPart) {
  const ScratchFolder folder;
  std::vector<std::int64_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  write_token_file(folder.path("a.tokens"), tokens, 1000);
  const TokenFile file = TokenFile::open(folder.path("a.tokens"));
  std::vector<std::int64_t> part(3);
  file.read(997, part);
  EXPECT_EQ(part, (std::vector<std::int64_t>{997, 998, 999}));
  EXPECT_THROW(file.read(998, part), InternalError);
}

TEST(TokenFile, RejectsMissingFoldersAndEmptyFiles) {
  const ScratchFolder folder;
  EXPECT_EQ(refusal([&] { TokenFile::open(folder.path("none.txt")); }).what,
            "there is no such file");
  EXPECT_EQ(refusal([&] { TokenFile::open(folder.path()); }).got, "a folder");
  write_text(folder.path("empty.txt"), "");
  EXPECT_EQ(refusal([&] { TokenFile::open(folder.path("empty.txt")); }).what, "the file is empty");
}

TEST(TokenFile, RejectsTextNamedAsTokens) {
  const ScratchFolder folder;
  write_text(folder.path("a.tokens"), "just text");
  EXPECT_NE(refusal([&] { TokenFile::open(folder.path("a.tokens")); }).what.find("magic"),
            std::string::npos);
}

TEST(TokenFile, RejectsFileTruncatedAtAnyLength) {
  const ScratchFolder folder;
  const std::string path = folder.path("a.tokens");
  write_token_file(path, std::vector<std::int64_t>{1, 2, 300}, 50257);
  const std::string whole = read_text(path);
  for (std::size_t length = 8; length < whole.size(); ++length) {
    write_text(path, whole.substr(0, length));
    EXPECT_EQ(refusal([&] { TokenFile::open(path); }).what, "the token file is truncated");
  }
  write_text(path, whole + "x");
  EXPECT_THROW(TokenFile::open(path), UserError);
}

TEST(TokenFile, RejectsEveryFlippedBit) {
  const ScratchFolder folder;
  const std::string path = folder.path("a.tokens");
  write_token_file(path, std::vector<std::int64_t>{1, 2, 300}, 50257);
  const std::string whole = read_text(path);
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    // No vocabulary in range and no reserved byte can contradict the tokens.
    if ((byte >= 16 && byte < 24) || (byte >= 40 && byte < 64)) continue;
    std::string damaged = whole;
    damaged[byte] ^= 0x10;
    write_text(path, damaged);
    EXPECT_THROW(TokenFile::open(path), UserError) << "byte " << byte;
  }
}

TEST(TokenFile, NamesTokenOutOfRange) {
  const ScratchFolder folder;
  write_text(folder.path("a.txt"), "ab~c");
  const TokenFile text = TokenFile::open(folder.path("a.txt"));
  text.check_vocabulary(256);
  text.check_vocabulary('~' + 1);
  const ErrorText error = refusal([&] { text.check_vocabulary('~'); });
  EXPECT_EQ(error.what, "token out of range");
  EXPECT_EQ(error.got, "126 at position 2");

  write_token_file(folder.path("b.tokens"), std::vector<std::int64_t>{1, 2, 300}, 50257);
  const TokenFile wide = TokenFile::open(folder.path("b.tokens"));
  wide.check_vocabulary(301);
  EXPECT_EQ(refusal([&] { wide.check_vocabulary(300); }).fix, "set model.vocab=50257");
}

TEST(TokenFile, RejectsWritingTokenOutOfRange) {
  const ScratchFolder folder;
  const std::string path = folder.path("a.tokens");
  EXPECT_EQ(refusal([&] { write_token_file(path, std::vector<std::int64_t>{1, 9}, 9); }).got,
            "9 at position 1");
  EXPECT_EQ(refusal([&] { write_token_file(path, std::vector<std::int64_t>{-1}, 9); }).got,
            "-1 at position 0");
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace strata
