#include "strata/data/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

class WindowsTest : public ::testing::Test {
 protected:
  // A text of so many bytes: 0, 1, 2, ...
  DataOptions text(int bytes, const std::string& name = "a.txt") {
    std::ofstream file(folder_.path(name), std::ios::binary);
    for (int i = 0; i < bytes; ++i) file.put(static_cast<char>(i));
    return {.train = folder_.path(name)};
  }
  std::string refusal(const DataOptions& options, std::int64_t context, std::int64_t vocabulary) {
    try {
      open_corpus(options, context, vocabulary);
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().fix.empty());
      return error.text().what;
    }
    return "nothing refused";
  }
  ScratchFolder folder_;
};

TEST_F(WindowsTest, ShiftTargetsByOne) {
  DataOptions options = text(10);
  options.validation_fraction = 0;
  const Corpus corpus = open_corpus(options, 4, 256);
  ASSERT_EQ(corpus.train.count, 2);
  EXPECT_EQ(corpus.validation.count, 0);
  std::vector<std::int64_t> inputs(4), targets(4);
  corpus.train.read(1, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(targets, (std::vector<std::int64_t>{5, 6, 7, 8}));
  EXPECT_THROW(corpus.train.read(2, inputs, targets), InternalError);
}

TEST_F(WindowsTest, RequireOneTokenMoreThanContext) {
  DataOptions options = text(9);
  options.validation_fraction = 0;
  EXPECT_EQ(open_corpus(options, 8, 256).train.count, 1);
  EXPECT_EQ(refusal(options, 9, 256), "the file is shorter than one window");
}

TEST_F(WindowsTest, HoldOutEndOfFile) {
  DataOptions options = text(101);
  options.validation_fraction = 0.2;
  const Corpus corpus = open_corpus(options, 10, 256);
  EXPECT_EQ(corpus.train.count, 8);
  EXPECT_EQ(corpus.validation.count, 2);
  std::vector<std::int64_t> inputs(10), targets(10);
  corpus.validation.read(0, inputs, targets);
  EXPECT_EQ(inputs.front(), 80);
}

TEST_F(WindowsTest, HoldOutAtLeastOneWindowAndLeaveOne) {
  DataOptions options = text(9);
  options.validation_fraction = 0.01;
  EXPECT_EQ(open_corpus(options, 4, 256).validation.count, 1);
  EXPECT_EQ(open_corpus(options, 4, 256).train.count, 1);
  EXPECT_EQ(refusal(options, 8, 256), "one window cannot be split into training and validation");
}

TEST_F(WindowsTest, ValidateOnSeparateFile) {
  DataOptions options = text(101);
  options.validation = text(21, "b.txt").train;
  const Corpus corpus = open_corpus(options, 10, 256);
  EXPECT_EQ(corpus.train.count, 10);
  EXPECT_EQ(corpus.validation.count, 2);
  EXPECT_EQ(corpus.validation.first, 0);
}

TEST_F(WindowsTest, RejectMissingNameAndTokensOutOfRange) {
  EXPECT_EQ(refusal({}, 4, 256), "no file to train on is named");
  EXPECT_EQ(refusal(text(101), 4, 100), "token out of range");
}

TEST_F(WindowsTest, RejectTokenizerThatContradictsFile) {
  DataOptions options = text(101);
  options.tokenizer = "none";
  EXPECT_EQ(refusal(options, 4, 256), "the tokenizer does not fit the file");

  write_token_file(folder_.path("a.tokens"), std::vector<std::int64_t>(50, 300), 1000);
  options = {.train = folder_.path("a.tokens")};
  EXPECT_EQ(refusal(options, 4, 1000), "the tokenizer does not fit the file");
  options.tokenizer = "none";
  EXPECT_EQ(open_corpus(options, 4, 1000).train.count, 11);  // and 1 held out
}

TEST(DataOptions, AreReadFromRecipe) {
  DataOptions options;
  OptionSet set;
  describe(set, "data", options);
  set.load_yaml("data: {train: kjv.txt, tokenizer: bytes, validation_fraction: 0.05}", "r.yaml");
  EXPECT_EQ(options.train, "kjv.txt");
  set.set("data.tokenizer=models/llama");
  EXPECT_EQ(options.tokenizer, "models/llama");
  EXPECT_THROW(set.set("data.validation_fraction=1"), UserError);
}

TEST_F(WindowsTest, TokenizeTexts) {
  // Byte-level: Ġ is a space.
  std::ofstream(folder_.path("tokenizer.json")) << R"({
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "-": 4, "+": 5, "bc": 6, "ab": 7, "Ġa": 8, ".": 9},
      "merges": ["b c", ["a", "b"], "Ġ a"]}})";
  std::ofstream(folder_.path("text.txt")) << "abc abc abab";  // 0 6 8 6 3 7 7
  DataOptions options{.train = folder_.path("text.txt"), .tokenizer = folder_.path()};
  options.validation_fraction = 0;
  const Corpus corpus = open_corpus(options, 3, 10);
  ASSERT_EQ(corpus.train.count, 2);
  std::vector<std::int64_t> inputs(3), targets(3);
  corpus.train.read(1, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<std::int64_t>{6, 3, 7}));
  EXPECT_EQ(targets, (std::vector<std::int64_t>{3, 7, 7}));
  EXPECT_EQ(refusal(options, 3, 9), "the tokenizer has more tokens than the model");

  const auto tokenizer = make_tokenizer(folder_.path());
  write_token_file(folder_.path("a.tokens"), tokenizer->encode("abc abc abab"), 10);
  options.train = folder_.path("a.tokens");
  EXPECT_EQ(open_corpus(options, 3, 10).train.count, 2);
  write_byte_token_file(folder_.path("b.tokens"), "abcdefgh");
  options.train = folder_.path("b.tokens");
  EXPECT_EQ(refusal(options, 3, 256), "the tokenizer does not fit the file");
}

TEST_F(WindowsTest, RejectTextTruncatedWhileRead) {
  DataOptions options = text(1000);
  const Corpus corpus = open_corpus(options, 10, 256);
  std::filesystem::resize_file(options.train, 5);
  std::vector<std::int64_t> inputs(10), targets(10);
  try {
    corpus.train.read(50, inputs, targets);
    FAIL() << "read a removed part";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, options.train);
    EXPECT_EQ(error.text().what, "the file became shorter while it was read");
  }
}

}  // namespace
}  // namespace strata
