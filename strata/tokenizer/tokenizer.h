/// Turns text into tokens and back, as the model's own tokenizer does.
///
/// Reads a Hugging Face tokenizer.json of type BPE: byte-level (GPT-2, Llama 3, Qwen) or
/// SentencePiece-like with byte fallback (Llama 2). Ignores its truncation and padding. A GGUF file
/// is read as the tokenizer.json that its metadata stands for.
///
/// Threads  const, any thread.
/// Cost     one pass; a word is merged once per encode() and then looked up.
/// Errors   UserError: no such file, a tokenizer.json that is damaged, or a part of it that isn't
///          supported, by name.
/// Source   docs of the `tokenizers` library, the oracle of tests/parity/tokenizer_test.py. One
///          known difference: U+180E is white space here (PCRE2), and NFKC knows later characters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Tokens of the text alone, without prefix(). A token's name in the text ("<|endoftext|>") is
  /// that token. Bytes that aren't UTF-8 are kept if the vocabulary has bytes.
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;

  /// Bytes of the tokens; special tokens and ids without a token have none.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;

  std::int64_t vocabulary() const { return vocabulary_; }  ///< every token is smaller
  std::optional<std::int64_t> bos() const { return bos_; }
  std::optional<std::int64_t> eos() const { return eos_; }
  const std::vector<std::int64_t>& prefix() const { return prefix_; }  ///< begins every text

  /// prefix() and the tokens of the text.
  std::vector<std::int64_t> encode_with_prefix(std::string_view text) const;
  /// Tokens that end a generated text: one that ends a text, and one that begins the next.
  std::vector<std::int64_t> ends() const;

 protected:
  Tokenizer() = default;

  std::int64_t vocabulary_ = 0;
  std::optional<std::int64_t> bos_, eos_;
  std::vector<std::int64_t> prefix_;
};

/// Recipes and checkpoints name a tokenizer by the name of a kind, or by a path.
enum class TokenizerKind : std::uint8_t {
  kBytes,  ///< "bytes": the bytes of the text
  kNone,   ///< "none": a token file has the tokens; their text is unknown
  kFile,   ///< a tokenizer.json, a folder that has one, or a GGUF file
};
TokenizerKind tokenizer_kind(std::string_view name);

/// `name`: any kind except kNone.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name);

}  // namespace strata
