#include "strata/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/pretrained/example_gguf_test.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int64_t>;

// Byte-level: Ġ is a space, Ã and Ħ are the bytes of Ä.
Json byte_level() {
  return Json::parse(R"({
    "added_tokens": [{"content": "<|end|>", "id": 9, "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE",
      "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "Ã": 4, "Ħ": 5, "bc": 6, "ab": 7, "Ġa": 8},
      "merges": ["b c", ["a", "b"], "Ġ a"]}})");
}

// As Llama 2: spaces are visible characters, one before the text; byte tokens exist only for Ä.
Json sentences() {
  return Json::parse(R"({
    "added_tokens": [{"content": "<s>", "id": 0, "special": true, "normalized": false},
                     {"content": "<note>", "id": 9, "special": false, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"ids": [0]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<s>": 0, "<unk>": 1, "<0xC3>": 2, "<0x84>": 3, "▁": 4, "a": 5, "b": 6, "▁a": 7,
                "▁ab": 8},
      "merges": ["▁ a", "▁a b"]}})");
}

class TokenizerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> made(const Json& file) {
    std::ofstream(folder_.path("tokenizer.json")) << file;
    return make_tokenizer(folder_.path());
  }
  ErrorText refusal(const Json& file) {
    try {
      made(file);
    } catch (const UserError& error) {
      EXPECT_FALSE(error.text().fix.empty());
      return error.text();
    }
    return {};
  }
  ScratchFolder folder_;
};

TEST_F(TokenizerTest, BytesAreTokens) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->encode("a\xFF"), (Tokens{97, 255}));
  EXPECT_EQ(tokenizer->decode(Tokens{97, 255}), "a\xFF");
  EXPECT_FALSE(tokenizer->bos());
}

TEST(TokenizerKindTest, IsFileUnlessNameIsKind) {
  EXPECT_EQ(tokenizer_kind("bytes"), TokenizerKind::kBytes);
  EXPECT_EQ(tokenizer_kind("none"), TokenizerKind::kNone);
  for (const char* path : {"", "Bytes", "none/tokenizer.json", "models/llama"})
    EXPECT_EQ(tokenizer_kind(path), TokenizerKind::kFile) << path;
}

TEST_F(TokenizerTest, MergesByRank) {
  const auto tokenizer = made(byte_level());
  EXPECT_EQ(tokenizer->vocabulary(), 10);
  EXPECT_EQ(tokenizer->encode("abc"), (Tokens{0, 6}));  // bc has a better rank than ab
  EXPECT_EQ(tokenizer->encode("abab"), (Tokens{7, 7}));
  EXPECT_EQ(tokenizer->encode("b a"), (Tokens{1, 8}));
  EXPECT_EQ(tokenizer->encode("ab<|end|>Ä"), (Tokens{7, 9, 4, 5}));
  EXPECT_EQ(tokenizer->decode(Tokens{7, 9, 4, 5, 8}), "abÄ a");
  EXPECT_EQ(tokenizer->encode(""), Tokens());
}

TEST_F(TokenizerTest, ReadsGgufFile) {
  ExampleGguf file;
  add_example_tokenizer(file).integer("tokenizer.ggml.bos_token_id", 6);
  file.flag("tokenizer.ggml.add_bos_token", true).write(folder_.path("m.gguf"));
  const auto tokenizer = make_tokenizer(folder_.path("m.gguf"));
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_EQ(tokenizer->encode("abc a<|end|>"), (Tokens{4, 2, 5, 6}));
  EXPECT_EQ(tokenizer->decode(Tokens{4, 2, 5, 6}), "abc a");
  EXPECT_EQ(tokenizer->prefix(), (Tokens{6}));
  EXPECT_EQ(tokenizer->eos(), 6);
}

TEST_F(TokenizerTest, KeepsBytesThatAreNotUtf8) {
  const auto tokenizer = made(byte_level());
  const std::string text = "ab\xC3 \x84\xC3";
  EXPECT_EQ(tokenizer->encode(text), (Tokens{7, 4, 3, 5, 4}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST_F(TokenizerTest, KeepsWholeWordsIfConfigured) {
  Json file = byte_level();
  file["model"]["vocab"]["abc"] = 10;
  EXPECT_EQ(made(file)->encode("abc"), (Tokens{0, 6}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(made(file)->encode("abc"), (Tokens{10}));
}

TEST_F(TokenizerTest, SplitsByPatternBeforeMerging) {
  Json file = byte_level();
  file["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "b"}, "behavior": "MergedWithPrevious"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  EXPECT_EQ(made(file)->encode("abc"), (Tokens{7, 2}));
}

TEST_F(TokenizerTest, FallsBackToBytesThenToUnknown) {
  const auto tokenizer = made(sentences());
  EXPECT_EQ(tokenizer->prefix(), (Tokens{0}));
  EXPECT_EQ(tokenizer->bos(), 0);
  EXPECT_EQ(tokenizer->encode("ab a"), (Tokens{8, 7}));
  EXPECT_EQ(tokenizer->encode("Ä"), (Tokens{4, 2, 3}));
  EXPECT_EQ(tokenizer->encode("xyb"), (Tokens{4, 1, 6}));  // x and y become one unknown
  EXPECT_EQ(tokenizer->decode(Tokens{0, 8, 7, 2, 3, 9}), "ab aÄ<note>");
}

TEST_F(TokenizerTest, SplitsLongTextsWhereNoMergeCrosses) {
  const auto tokenizer = made(sentences());
  std::string text = "ab";
  Tokens expected = {8};
  for (int i = 0; i < 500; ++i) {
    text += i % 3 == 0 ? " ab" : "xÄa";
    const Tokens more = i % 3 == 0 ? Tokens{8} : Tokens{1, 2, 3, 5};
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
}

TEST_F(TokenizerTest, ReadsNamesOfBeginAndEndTokens) {
  std::ofstream(folder_.path("tokenizer_config.json"))
      << R"({"bos_token": {"content": "<|end|>"}, "eos_token": "<|end|>"})";
  const auto tokenizer = made(byte_level());
  EXPECT_EQ(tokenizer->bos(), 9);
  EXPECT_EQ(tokenizer->eos(), 9);
  EXPECT_TRUE(tokenizer->prefix().empty());
}

TEST_F(TokenizerTest, RejectsUnsupportedPartsByName) {
  Json file = byte_level();
  file["normalizer"] =
      Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})");
  EXPECT_EQ(refusal(file).what, "normalizer.normalizers[0] cannot be used");
  EXPECT_EQ(refusal(file).got, "Lowercase");

  file = byte_level();
  file["model"]["type"] = "Unigram";
  EXPECT_EQ(refusal(file).got, "Unigram");

  file = byte_level();
  file["pre_tokenizer"]["type"] = "BertPreTokenizer";
  EXPECT_EQ(refusal(file).got, "BertPreTokenizer");

  file = byte_level();
  file["model"]["merges"].push_back("c c");
  EXPECT_EQ(refusal(file).what, "model.merges cannot be used");

  file = byte_level();
  file["decoder"] = nullptr;
  EXPECT_EQ(refusal(file).what, "decoder cannot be used");

  EXPECT_EQ(refusal(Json::array()).what, "this is no JSON object");
  EXPECT_THROW(make_tokenizer(folder_.path("none")), UserError);
}

TEST_F(TokenizerTest, RejectsHostileFilesByName) {
  Json file = byte_level();
  file["model"]["vocab"]["c"] = std::int64_t{1} << 40;
  EXPECT_EQ(refusal(file).what, "model.vocab.c cannot be used");
  file["model"]["vocab"]["c"] = -1;
  EXPECT_EQ(refusal(file).got, "-1");
  file = byte_level();
  file["model"]["vocab"]["c"] = INT32_MAX - 1;  // memory does not grow with the number
  EXPECT_EQ(made(file)->vocabulary(), INT32_MAX);
  EXPECT_EQ(made(file)->decode(Tokens{INT32_MAX - 1, 12345}), "c");
  file = sentences();
  file["decoder"]["decoders"][3]["start"] = INT32_MAX;  // must return at once
  EXPECT_EQ(made(file)->decode(Tokens{7}), "a");
  file["decoder"]["decoders"][3]["content"] = "";
  EXPECT_EQ(refusal(file).what, "decoder.decoders[3].content cannot be used");

  std::ofstream(folder_.path("tokenizer.json"))
      << std::string(100'000, '[') + std::string(100'000, ']');
  try {
    make_tokenizer(folder_.path());
    FAIL() << "read 100,000 levels";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().what, "the JSON is nested too deeply");
    EXPECT_EQ(error.text().where, folder_.path("tokenizer.json"));
  }
  std::filesystem::create_directory(folder_.path("tokenizer_config.json"));
  EXPECT_EQ(refusal(byte_level()).got, "a folder");
  EXPECT_EQ(refusal(byte_level()).where, folder_.path("tokenizer_config.json"));
}

}  // namespace
}  // namespace strata
