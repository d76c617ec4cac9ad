#include "strata/tokenizer/text_stream.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& prompt,
                                const std::string& text) {
  TextStream stream(tokenizer, tokenizer.encode(prompt));
  std::vector<std::string> pieces;
  for (const std::int64_t token : tokenizer.encode(text)) pieces.push_back(stream.push(token));
  pieces.push_back(stream.finish());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(TextStream, HoldsBackIncompleteCharacters) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(pieces(*bytes, "x", "a\xC3\xA9z"), (Pieces{"a", "", "\xC3\xA9", "z", ""}));
  EXPECT_EQ(pieces(*bytes, "", "\xF0\x9F\x98\x80"), (Pieces{"", "", "", "\xF0\x9F\x98\x80", ""}));
}

TEST(TextStream, ReplacesInvalidBytes) {
  const auto bytes = make_tokenizer("bytes");
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(pieces(*bytes, "", "\xFFz"), (Pieces{replacement, "z", ""}));
  EXPECT_EQ(pieces(*bytes, "", "\xE2\x82z"), (Pieces{"", "", replacement + replacement + "z", ""}));
  EXPECT_EQ(pieces(*bytes, "", "a\xE2"), (Pieces{"a", "", replacement}));
}

TEST(TextStream, NamesBytesOfNextTokenWithoutAddingIt) {
  const auto bytes = make_tokenizer("bytes");
  TextStream stream(*bytes, bytes->encode("x"));
  EXPECT_EQ(stream.bytes_of(0xC3), "\xC3");
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.bytes_of(0xA9), "\xA9");
  EXPECT_EQ(stream.push(0xA9), "\xC3\xA9");
}

// Token i is a word of i % 3 letters after a space; the space before a text is dropped, as in
// SentencePiece. Counts decoded tokens.
class Words final : public Tokenizer {
 public:
  Words() { vocabulary_ = 100; }
  std::vector<std::int64_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int64_t> tokens) const override {
    decoded += tokens.size();
    std::string text;
    for (const std::int64_t token : tokens)
      text += " " + std::string(static_cast<std::size_t>(token % 3), 'a');
    return text.starts_with(' ') ? text.substr(1) : text;
  }
  mutable std::size_t decoded = 0;
};

TEST(TextStream, JoinsToWholeTextAtConstantCost) {
  for (const std::size_t length : {0, 1, 3}) {
    std::vector<std::int64_t> prompt(length, 3), all = prompt;
    const Words tokenizer;
    TextStream stream(tokenizer, prompt);
    std::string text = tokenizer.decode(prompt);
    for (std::int64_t token = 0; token < 90; ++token) {
      text += stream.push(token % 7 == 0 ? 3 : token);
      all.push_back(token % 7 == 0 ? 3 : token);
    }
    EXPECT_LT(tokenizer.decoded, 90u * 40);
    EXPECT_EQ(text + stream.finish(), tokenizer.decode(all));
  }
}

}  // namespace
}  // namespace strata
